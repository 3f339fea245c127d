package isolate

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// openTree clones a mount (with all beneath it, if recursive) into a detached one.
func openTree(dir int, p string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if p == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, p, flags)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	return fd, nil
}

// attach puts a detached mount at a path, or, with an empty path, on the descriptor dir.
func attach(fd, dir int, p string) error {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if p == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	if err := unix.MoveMount(fd, "", dir, p, flags); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// restrict sets attributes of one mount, restrictTree of one and all beneath it.
func restrict(fd int, attrs uint64) error     { return setAttrs(fd, attrs, 0) }
func restrictTree(fd int, attrs uint64) error { return setAttrs(fd, attrs, unix.AT_RECURSIVE) }

func setAttrs(fd int, attrs uint64, flags uint) error {
	a := unix.MountAttr{Attr_set: attrs}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, &a); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// point opens the place for a mount, making directories (or, for a file, an empty file) where the view allows it.
func (v *view) point(p string, file bool) (int, error) {
	fd, err := v.open(p)
	if err == nil {
		return fd, nil
	}
	if err != unix.ENOENT {
		return -1, fmt.Errorf("%s: %w", p, err)
	}
	parent, err := v.point(path.Dir(p), false)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if file {
		f, err := unix.Openat(parent, path.Base(p), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
		if err == nil {
			unix.Close(f)
		}
		if err != nil && err != unix.EEXIST {
			return -1, noPlace(p, err)
		}
	} else if err := unix.Mkdirat(parent, path.Base(p), 0o755); err != nil && err != unix.EEXIST {
		return -1, noPlace(p, err)
	}
	return v.open(p)
}

func noPlace(p string, err error) error {
	return fmt.Errorf("there is no %s on the host, and it can't be made: %w", p, err)
}

// mountNew mounts a fresh file system in the view.
func (v *view) mountNew(fstype, p string, flags uintptr, data string) error {
	fd, err := v.point(p, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Mount(fstype, viaFD(fd), fstype, flags, data); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return nil
}

// viaFD names an open descriptor by a path. The host's /proc is still there while the view is built.
func viaFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// mountWorkspaces puts the workspaces in place, shorter paths first so that one may lie in another.
func (v *view) mountWorkspaces() error {
	order := make([]int, len(v.workspaces))
	for i := range order {
		order[i] = i
	}
	for i := range order { // few: insertion sort keeps the caller's order among equals
		for j := i; j > 0 && len(v.cfg.Workspaces[order[j]].Target) < len(v.cfg.Workspaces[order[j-1]].Target); j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	for _, i := range order {
		target := v.cfg.Workspaces[i].Target
		at, err := v.point(target, false)
		if err != nil {
			return err
		}
		fd := v.workspaces[i]
		if err := restrict(fd, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		err = attach(fd, at, "")
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

// mountBinds shows single files and directories of the host, found before the root is entered.
func (v *view) mountBinds() error {
	for _, b := range v.cfg.Binds {
		st, err := os.Stat(b.Source)
		if err != nil {
			return err
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, b.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Source, err)
		}
		attrs := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if !b.Writable {
			attrs |= unix.MOUNT_ATTR_RDONLY
		}
		if err := restrict(fd, attrs); err != nil {
			return err
		}
		at, err := v.point(b.Target, !st.IsDir())
		if err != nil {
			return err
		}
		err = attach(fd, at, "")
		unix.Close(at)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Target, err)
		}
	}
	return nil
}

// mountFiles puts small files on read-only file systems of their own, below /run/tine and /run/secrets. They can't go to
// disk and the program can't change them, though it may own the directories around them.
func (v *view) mountFiles() error {
	for _, dir := range []string{"/run/tine", "/run/secrets"} {
		var files []File
		for _, f := range v.cfg.Files {
			if below(f.Path, dir) {
				files = append(files, f)
			}
		}
		if len(files) == 0 {
			continue
		}
		if err := v.mountNew("tmpfs", dir, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
			return err
		}
		for _, b := range v.cfg.Binds { // their places, before this becomes read-only
			if below(b.Target, dir) {
				if err := v.bindPoint(b); err != nil {
					return err
				}
			}
		}
		at, err := v.open(dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := writeInto(at, strings.TrimPrefix(f.Path, dir+"/"), f); err != nil {
				unix.Close(at)
				return fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		err = restrict(at, unix.MOUNT_ATTR_RDONLY)
		unix.Close(at)
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *view) bindPoint(b Bind) error {
	st, err := os.Stat(b.Source)
	if err != nil {
		return err
	}
	fd, err := v.point(b.Target, !st.IsDir())
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func writeInto(dir int, rel string, f File) error {
	base := viaFD(dir)
	if err := os.MkdirAll(path.Join(base, path.Dir(rel)), 0o755); err != nil {
		return err
	}
	mode := f.Mode & 0o777
	if mode == 0 {
		mode = 0o444
	}
	file, err := os.OpenFile(path.Join(base, rel), os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(mode))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.Data); err != nil {
		return err
	}
	return file.Chown(int(f.UID), int(f.GID))
}
