package isolate

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// view is a root file system under construction. It is built beside the host's tree, in init's own mount namespace, and
// then becomes the root; the host's tree is detached.
type view struct {
	cfg    config
	root   *os.File // the new root's top
	top    string   // where it is mounted while under construction
	blank  int      // descriptor of a read-only tmpfs with an empty directory "dir" and an empty file "file"
	report *Report
	plan   plan
	home   string // real path of the home directory, once it is mounted

	blankDev uint64 // device number of blank

	workspaces []int // detached mounts, in the order of cfg.Workspaces
}

// buildView replaces init's root by the view.
func buildView(cfg config) (*view, error) {
	v := &view{cfg: cfg, report: &Report{Isolation: "private", Network: string(cfg.Network), Home: "none"}}
	if cfg.WritableHost {
		v.report.Isolation = "host"
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"detach from the host's mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"open workspaces", v.openWorkspaces},
		{"make root", v.makeRoot},
		{"bind the host", v.bindHost},
		{"hide", v.hide},
		{"mount /proc", v.mountProc},
		{"mount /sys", v.mountSys},
		{"mount /dev", v.mountDev},
		{"mount /run and /tmp", v.mountPrivate},
		{"mount home", v.mountHome},
		{"mount files", v.mountFiles},
		{"bind", v.mountBinds},
		{"mount workspaces", v.mountWorkspaces},
		{"enter root", v.enter},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return nil, setupErr(s.name, err)
		}
	}
	return v, nil
}

// openWorkspaces takes hold of the workspaces before anything is mounted over their paths.
func (v *view) openWorkspaces() error {
	for _, w := range v.cfg.Workspaces {
		fd := w.FD
		if fd < 0 {
			var err error
			if fd, err = openTree(unix.AT_FDCWD, w.Path, false); err != nil {
				return fmt.Errorf("%s: %w", w.Target, err)
			}
		}
		v.workspaces = append(v.workspaces, fd)
	}
	return nil
}

// makeRoot mounts the new root (a tmpfs: nothing is ever created in the host's root) and the blanks.
func (v *view) makeRoot() error {
	v.top = path.Join(v.cfg.Stage, "root")
	if err := unix.Mount("tine", v.top, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=4m"); err != nil {
		return err
	}
	root, err := os.OpenFile(v.top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	v.root = root
	for name := range ownTop {
		if err := unix.Mkdirat(int(root.Fd()), name, 0o755); err != nil {
			return err
		}
	}
	return v.makeBlank(path.Join(v.top, "tmp"))
}

// ownTop are the top-level directories that a private view has of its own.
var ownTop = map[string]bool{"proc": true, "sys": true, "dev": true, "run": true, "tmp": true}

// bindHost binds the host's top-level directories, read-only, without device nodes.
func (v *view) bindHost() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if ownTop[name] && (!v.cfg.WritableHost || name == "proc") || v.isTarget("/"+name) {
			continue
		}
		if err := v.bindTop(name, e.Type()); err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}

func (v *view) isTarget(p string) bool {
	for _, w := range v.cfg.Workspaces {
		if w.Target == p {
			return true
		}
	}
	return false
}

func (v *view) bindTop(name string, typ os.FileMode) error {
	dst := path.Join(v.top, name)
	switch {
	case typ&os.ModeSymlink != 0:
		target, err := os.Readlink("/" + name)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	case typ.IsDir():
		if err := os.Mkdir(dst, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
	case typ.IsRegular():
		f, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		f.Close()
	default:
		return nil
	}
	fd, err := openTree(unix.AT_FDCWD, "/"+name, true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !v.cfg.WritableHost {
		if err := restrictTree(fd, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
	}
	return attach(fd, unix.AT_FDCWD, dst)
}

// enter makes the view the root and detaches the host's tree.
func (v *view) enter() error {
	if err := restrict(int(v.root.Fd()), unix.MOUNT_ATTR_RDONLY); err != nil {
		return err
	}
	if err := unix.Fchdir(int(v.root.Fd())); err != nil {
		return err
	}
	v.root.Close()
	for _, fd := range v.workspaces {
		unix.Close(fd)
	}
	err := unix.PivotRoot(".", ".")
	if err == nil {
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return err
		}
		return unix.Chdir("/")
	}
	if err != unix.EINVAL {
		return err
	}
	// The host's root is the kernel's initial one, which can't be replaced: move over it, as switch_root does.
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}
