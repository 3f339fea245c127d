package isolate

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func realFile(p string) (string, error) { return filepath.EvalSymlinks(p) }

// mountHome gives the program a home directory that it may write to: a copy-on-write view of the host's with the upper
// layer in the scratch directory, else in memory, else an empty one.
func (v *view) mountHome() error {
	if v.cfg.WritableHost {
		v.report.Home = "host"
		return nil
	}
	home := v.cfg.Home.Path
	if home == "" || home == "/" {
		v.report.HomeReason = "no home directory"
		return nil
	}
	real, err := realFile(home)
	if err != nil || leaves(real) {
		return v.emptyHome(home, "the host has no "+home)
	}
	v.home = real
	if v.cfg.Home.Mode == HomeEmpty {
		return v.emptyHome(real, "asked for")
	}
	lower, err := os.OpenFile(real, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return v.emptyHome(real, err.Error())
	}
	defer lower.Close()

	inner := v.mountsBelow(real)
	defer closeMounts(inner)
	err = v.overlayHome(real, lower, v.cfg.Stage)
	v.report.Home = "overlay"
	if err != nil {
		v.report.HomeReason = "no overlay in the scratch directory: " + err.Error()
		v.report.Home = "overlay-memory"
		err = v.memoryOverlay(real, lower)
	}
	if err != nil {
		return v.emptyHome(real, err.Error())
	}
	// An overlay looks through mounts: what is mounted in the home directory comes back read-only.
	for _, m := range inner {
		at, err := v.open(m.point)
		if err != nil {
			return fmt.Errorf("%s: %w", m.point, err)
		}
		err = attach(m.fd, at, "")
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("%s: %w", m.point, err)
		}
		v.report.Notes = append(v.report.Notes, "read-only in the home directory: "+m.point)
	}
	return v.coverAgain(real)
}

// innerMount is a clone of a mount of the view.
type innerMount struct {
	point string
	fd    int
}

// mountsBelow clones the mounts that the view has below a directory, coverings excepted.
func (v *view) mountsBelow(dir string) []innerMount {
	mounts, err := readMounts()
	if err != nil {
		return nil
	}
	var out []innerMount
	for _, m := range mounts {
		point, ok := strings.CutPrefix(m.Point, v.top)
		if !ok || !below(point, dir) || m.Source == blankSource {
			continue
		}
		if fd, err := openTree(unix.AT_FDCWD, m.Point, false); err == nil {
			out = append(out, innerMount{point, fd})
		}
	}
	return out
}

func closeMounts(list []innerMount) {
	for _, m := range list {
		unix.Close(m.fd)
	}
}

// leaves reports whether a path lies where the view has its own: the host's content isn't wanted there.
func leaves(p string) bool {
	for name := range ownTop {
		if within(p, "/"+name) {
			return true
		}
	}
	return false
}

func (v *view) overlayHome(home string, lower *os.File, stage string) error {
	var st unix.Stat_t
	if err := unix.Stat(viaFD(int(lower.Fd())), &st); err != nil {
		return err
	}
	upper, err := os.Open(path.Join(stage, "upper"))
	if err != nil {
		return err
	}
	defer upper.Close()
	work, err := os.Open(path.Join(stage, "work"))
	if err != nil {
		return err
	}
	defer work.Close()
	// The merged top has the attributes of the upper one.
	if err := upper.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(int(upper.Fd()), st.Mode&0o7777); err != nil {
		return err
	}
	at, err := v.open(home)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", viaFD(int(lower.Fd())), viaFD(int(upper.Fd())), viaFD(int(work.Fd())))
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	// Nothing in the upper layer is kept, so its fsyncs may be ignored (Linux 5.10).
	if err := unix.Mount("tine-home", viaFD(at), "overlay", flags, data+",volatile"); err != nil {
		if err := unix.Mount("tine-home", viaFD(at), "overlay", flags, data); err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
	}
	mtime := unix.NsecToTimespec(time.Unix(st.Mtim.Unix()).UnixNano())
	unix.UtimesNanoAt(unix.AT_FDCWD, viaFD(int(upper.Fd())), []unix.Timespec{mtime, mtime}, 0)
	return nil
}

// memoryOverlay keeps the upper layer in memory: where the scratch directory lies in the home directory itself, or on a
// file system that can't hold an upper layer.
func (v *view) memoryOverlay(home string, lower *os.File) error {
	work := path.Join(v.cfg.Stage, "work")
	if err := unix.Mount("tine-home", work, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(path.Join(work, d), 0o755); err != nil {
			return err
		}
	}
	return v.overlayHome(home, lower, work)
}

func (v *view) emptyHome(home, reason string) error {
	v.report.Home, v.report.HomeReason = "empty", reason
	fd, err := v.point(home, false)
	if err != nil {
		v.report.Home = "none"
		v.report.HomeReason = reason + "; " + err.Error()
		return nil
	}
	unix.Close(fd)
	return v.mountNew("tmpfs", home, unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=700,uid=%d,gid=%d", v.cfg.UID, v.cfg.GID))
}

// coverAgain covers in the overlay what was covered in the directory beneath: an overlay looks through mounts.
func (v *view) coverAgain(home string) error {
	for _, c := range v.plan.Cover {
		if !below(c, home) {
			continue
		}
		if _, err := v.cover(c); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}
