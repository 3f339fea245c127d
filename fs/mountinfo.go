package fs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mountpoint is one of tine's mounts as /proc/self/mountinfo shows it.
type Mountpoint struct {
	Path   string
	Source string
	Minor  uint32 // of its device; the connection's number
}

// Mountpoints lists tine's mounts in this process's mount namespace, in mount order.
func Mountpoints() ([]Mountpoint, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mountinfo: %w", err)
	}
	var list []Mountpoint
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		// id parent major:minor root mountpoint options [optional]... - type source super
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 2 || t[0] != "fuse."+subtype {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(h[2], "%d:%d", &major, &minor); err != nil {
			continue
		}
		list = append(list, Mountpoint{Path: unescape(h[4]), Source: unescape(t[1]), Minor: minor})
	}
	return list, nil
}

// unescape undoes mountinfo's \ooo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			var c byte
			if _, err := fmt.Sscanf(s[i+1:i+4], "%o", &c); err == nil {
				b.WriteByte(c)
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Unmount takes away the tine mount on top of dir, lazily. Anything else that is mounted there is left alone:
// ErrNotMounted. It never asks the mount's server, which may be dead.
func Unmount(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	// The parent is resolved, the last component not: it may be a root whose server doesn't answer.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(parent, filepath.Base(path))
	}
	list, err := Mountpoints()
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Path != path {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		return nil
	}
	return fmt.Errorf("unmount %s: %w", dir, ErrNotMounted)
}
