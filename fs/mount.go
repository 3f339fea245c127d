package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountOptions say how a mount looks. The zero value is right for a fork.
type MountOptions struct {
	// Source is the first column of /proc/mounts; "tine" if empty.
	Source string
	// Classic uses mount(2) although the kernel has the newer calls.
	Classic bool
}

// subtype makes the mount's type "fuse.tine".
const subtype = "tine"

// Errors of mounting. Each is wrapped with the path or the call that it is about.
var (
	// ErrNoDevice: /dev/fuse is missing or can't be opened.
	ErrNoDevice = errors.New("FUSE is not available")
	// ErrMountPoint: the mount point is missing or no directory.
	ErrMountPoint = errors.New("mount point can't be used")
	// ErrBusy: something is mounted on the mount point already.
	ErrBusy = errors.New("mount point is busy")
	// ErrNotMounted: what should be unmounted is no mount of ours.
	ErrNotMounted = errors.New("not a mount of tine")
)

// Mounted is a FUSE file system that is mounted but not yet visible to anybody: it has no place in any mount
// namespace until it is attached. Until its descriptor is served, every access waits.
type Mounted struct {
	// Dev is /dev/fuse, the server's end, for Server.Serve. Whoever hands it on sets it to -1.
	Dev int
	// Minor is the connection's number in fusectl, and the minor of st_dev.
	Minor uint32

	fd      int    // the mount: an O_PATH descriptor of its root
	private string // classic: the hidden place where it is mounted
}

// Mount opens /dev/fuse and makes a mount for it. The kernel has sent INIT when it returns.
func Mount(ctx context.Context, opt MountOptions) (*Mounted, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opt.Source == "" {
		opt.Source = subtype
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: /dev/fuse: %w", ErrNoDevice, err)
	}
	m := &Mounted{Dev: dev, fd: -1}
	err = unix.ENOSYS
	if !opt.Classic {
		err = m.mountDetached(opt)
	}
	if err == unix.ENOSYS {
		err = m.mountHidden(opt)
	}
	if err == nil {
		err = m.identify()
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// mountDetached uses fsopen and fsmount; unix.ENOSYS, unwrapped, if the kernel doesn't have them.
func (m *Mounted) mountDetached(opt MountOptions) error {
	ctx, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err == unix.ENOSYS {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: fsopen: %w", ErrNoDevice, err)
	}
	defer unix.Close(ctx)
	for _, p := range m.params() {
		if p.value == "" {
			err = unix.FsconfigSetFlag(ctx, p.key)
		} else {
			err = unix.FsconfigSetString(ctx, p.key, p.value)
		}
		if err != nil {
			return fmt.Errorf("mount option %s: %w%s", p.key, err, contextLog(ctx))
		}
	}
	for key, value := range map[string]string{"source": opt.Source, "subtype": subtype} {
		if err := unix.FsconfigSetString(ctx, key, value); err != nil {
			return fmt.Errorf("mount option %s: %w%s", key, err, contextLog(ctx))
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("fsconfig: %w%s", err, contextLog(ctx))
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("fsmount: %w", err)
	}
	m.fd = fd
	return nil
}

type param struct{ key, value string } // no value: a flag

func (m *Mounted) params() []param {
	return []param{
		{"fd", strconv.Itoa(m.Dev)},
		{"rootmode", "40000"},
		{"user_id", strconv.Itoa(os.Getuid())},
		{"group_id", strconv.Itoa(os.Getgid())},
		// Entries are cached and OPEN is never seen, so that only the kernel can check permissions.
		{"default_permissions", ""},
		{"allow_other", ""},
	}
}

// contextLog is what the kernel says about a failed fsconfig.
func contextLog(fd int) string {
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err != nil || n <= 0 {
		return ""
	}
	return " (" + strings.TrimSpace(string(b[:n])) + ")"
}

// mountHidden uses mount(2), in a private directory, so that the mount isn't reachable before it is ready.
func (m *Mounted) mountHidden(opt MountOptions) error {
	dir, err := os.MkdirTemp("", "tine-mount-")
	if err != nil {
		return fmt.Errorf("a private mount point: %w", err)
	}
	m.private = dir
	var opts []string
	for _, p := range m.params() {
		if p.value == "" {
			opts = append(opts, p.key)
		} else {
			opts = append(opts, p.key+"="+p.value)
		}
	}
	err = unix.Mount(opt.Source, dir, "fuse."+subtype, unix.MS_NOSUID|unix.MS_NODEV, strings.Join(opts, ","))
	if err != nil {
		return fmt.Errorf("%w: mount: %w", ErrNoDevice, err)
	}
	if m.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// identify finds the connection's number without a request to the server.
func (m *Mounted) identify() error {
	var st unix.Statx_t
	if err := unix.Statx(m.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("statx of the mount: %w", err)
	}
	m.Minor = st.Dev_minor
	return nil
}

func (m *Mounted) takeDev() int {
	fd := m.Dev
	m.Dev = -1
	return fd
}

// FD is an O_PATH descriptor of the mount's root, for openat(2), and for move_mount(2) in any namespace. It belongs
// to m.
func (m *Mounted) FD() int { return m.fd }

// Attach makes the mount visible at dir, an existing directory with nothing mounted on it. An attached mount stays
// when m is closed.
func (m *Mounted) Attach(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMountPoint, dir, err)
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMountPoint, dir, err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return fmt.Errorf("%w: %s has a mount already", ErrBusy, dir)
	}
	return m.AttachFD(fd, dir)
}

// AttachFD is Attach for an O_PATH descriptor of the mount point; name is for messages.
func (m *Mounted) AttachFD(fd int, name string) error {
	if m.private == "" {
		err := unix.MoveMount(m.fd, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		if err != nil {
			return fmt.Errorf("%w: %s: move_mount: %w", ErrMountPoint, name, err)
		}
		return nil
	}
	// A bind rather than MS_MOVE, which a shared parent refuses.
	target := fdPath(fd)
	if err := unix.Mount(fdPath(m.fd), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%w: %s: bind: %w", ErrMountPoint, name, err)
	}
	// fd still names the directory beneath; the mount is found by its path.
	at, err := unix.Open(filepath.Clean(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMountPoint, name, err)
	}
	m.unhide()
	m.fd = at
	return nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (m *Mounted) unhide() {
	unix.Close(m.fd)
	unix.Unmount(m.private, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	os.Remove(m.private)
	m.private, m.fd = "", -1
}

// Detach takes the mount away from where it was attached in this process's mount namespace, whatever is mounted
// over it and whoever uses it: users keep what they have open, nobody else finds it. The file system ends when the
// last of them is gone.
func (m *Mounted) Detach() error {
	if m.private != "" {
		return nil
	}
	if m.fd < 0 {
		return ErrNotMounted
	}
	if err := unix.Unmount(fdPath(m.fd), unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil // EINVAL: it isn't attached here any more, or never was
}

// Close gives up the descriptors. A mount that isn't attached ends with it. Dev is closed unless it was taken over.
func (m *Mounted) Close() error {
	if m.private != "" {
		m.unhide()
	}
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
	if m.Dev >= 0 {
		unix.Close(m.Dev)
		m.Dev = -1
	}
	return nil
}
