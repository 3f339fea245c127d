package isolate

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// blankSource is the name under which coverings appear in the view's mountinfo.
const blankSource = "tine-blank"

// makeBlank mounts what coverings are clones of. It lies beneath the view's /tmp, where no path leads but where it can be
// cloned as long as the view exists.
func (v *view) makeBlank(at string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount(blankSource, at, "tmpfs", flags, "mode=755,size=4k,nr_inodes=4"); err != nil {
		return err
	}
	if err := unix.Mkdir(at+"/dir", 0o555); err != nil {
		return err
	}
	f, err := os.OpenFile(at+"/file", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return err
	}
	if v.blank, err = unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(v.blank, &st)
	v.blankDev = st.Dev
	return err
}

// hide removes the mounts that have no place in the view and covers what must not be seen.
func (v *view) hide() error {
	if v.cfg.WritableHost {
		return nil
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	var host, ours []mountEntry
	for _, m := range mounts {
		if within(m.Point, v.top) {
			ours = append(ours, m)
		} else {
			host = append(host, m)
		}
	}
	homes := []string{v.cfg.Home.Path}
	if real, err := realFile(v.cfg.Home.Path); err == nil && v.cfg.Home.Path != "" {
		homes = append(homes, real)
	}
	p, err := planner{mounts: host, mountID: mountID, backing: backingFiles, homes: homes}.makePlan(v.cfg.Hide, append(swapFiles(), v.cfg.Sockets...))
	if err != nil {
		return err
	}
	v.plan = p
	if err := v.detachMounts(ours, p); err != nil {
		return err
	}
	for _, c := range p.Cover {
		covered, err := v.cover(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		if covered {
			v.report.Covered = append(v.report.Covered, c)
		}
	}
	return nil
}

// detachMounts takes out of the view, last mounted first, what is left out by type and what lies at or below a covering.
func (v *view) detachMounts(ours []mountEntry, p plan) error {
	for i := len(ours) - 1; i >= 0; i-- {
		m := ours[i]
		rel := strings.TrimPrefix(m.Point, v.top)
		if rel == "" || m.Source == blankSource {
			continue
		}
		out := leftOut(m.FSType)
		if out {
			v.report.Absent = append(v.report.Absent, rel)
		}
		for _, c := range p.Cover {
			out = out || within(rel, c)
		}
		if !out {
			continue
		}
		if err := unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

// mountID asks the kernel on which mount a host path ends. When in doubt the path is there, on an unknown one.
func mountID(p string) (id int, there bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return 0, false
	case err != nil || st.Mask&unix.STATX_MNT_ID == 0:
		return 0, true
	}
	return int(st.Mnt_id), true
}

// open opens a path of the view without following any symlink: one that was swapped for a link is an error, not a hole.
func (v *view) open(p string) (int, error) {
	rel := strings.TrimPrefix(p, "/")
	if rel == "" {
		rel = "."
	}
	return unix.Openat2(int(v.root.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
}

// cover puts nothing over a directory or file of the view. What isn't in the view needs no covering.
func (v *view) cover(p string) (bool, error) {
	fd, err := v.open(p)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	with := "file"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		with = "dir"
	case unix.S_IFLNK:
		return false, errors.New("became a symlink")
	}
	src, err := openTree(v.blank, with, false)
	if err != nil {
		return false, err
	}
	defer unix.Close(src)
	return true, attach(src, fd, "")
}
