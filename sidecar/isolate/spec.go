package isolate

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Network says which network the program sees.
type Network string

const (
	// NetworkHost shares the host's network namespace. Abstract unix sockets of the host are in it too; they are fenced
	// off by landlock where the kernel can (Report.AbstractSockets).
	NetworkHost Network = "host"
	// NetworkNone is a namespace of its own that holds only a loopback device.
	NetworkNone Network = "none"
)

// HomeMode says what the program finds at its home directory.
type HomeMode string

const (
	// HomePrivate is a copy-on-write view of the host's directory, or, where that can't be had, an empty directory.
	HomePrivate HomeMode = "private"
	// HomeEmpty is an empty directory in memory.
	HomeEmpty HomeMode = "empty"
)

// Workspace is a mounted file system that appears, writable, at Target.
type Workspace struct {
	Target string   // absolute path in the view
	Path   string   // where the host has it mounted; used when Mount is nil
	Mount  *os.File // a detached mount (fsmount or open_tree); consumed by Start's child, closed by the caller
}

// Bind shows one host file, directory or socket at Target, also one that would otherwise be covered.
type Bind struct {
	Source, Target string
	Writable       bool
}

// File is a small read-only file that the program finds under /run/tine or /run/secrets.
type File struct {
	Path     string // absolute, below /run/tine or /run/secrets
	Data     []byte
	Mode     uint32 // permission bits; 0 means 0444
	UID, GID uint32
}

// Limits bound the whole process tree. Zero means no limit.
type Limits struct {
	Memory int64   // bytes, swap included where the kernel accounts it
	CPUs   float64 // processors' worth of time
	Pids   int64   // processes and threads
}

// Home describes the program's home directory.
type Home struct {
	Path string // absolute; empty for none
	Mode HomeMode
}

// Spec is all there is to say about a run. The zero value of a field is its default.
type Spec struct {
	Args []string // Args[0] is looked up in Env's PATH, inside the view
	Env  []string // the whole environment, exactly
	Dir  string   // absolute path in the view; default: the first workspace's target

	UID, GID uint32
	Groups   []uint32
	Umask    uint32 // default 022

	Workspaces []Workspace
	Binds      []Bind
	Files      []File

	// Hide lists what must not be seen or reached: the store, source repositories with worktrees and alternates, capture
	// roots, controller files. A path that doesn't exist is nothing to hide. The host's sockets need not be listed.
	Hide []string

	// WritableHost lifts the isolation: the host's tree as it is, nothing hidden. Report.Isolation is then "host".
	WritableHost bool

	Network  Network // default NetworkHost
	Limits   Limits
	Deadline time.Time // zero: none
	Home     Home
	Hostname string // default "tine"

	// TTY gives the program a terminal of its own, connected to Stdin and Stdout (Stderr is not used). If Stdin is a
	// terminal it is put into raw mode until the program ends, and its size is followed.
	TTY    bool
	Stdin  io.Reader // nil: /dev/null. An *os.File is passed on as it is, others through a pipe
	Stdout io.Writer // nil: /dev/null
	Stderr io.Writer

	// Scratch is a host directory on a file system that can be an overlay's upper layer. Start makes a directory of its
	// own in it, Wait removes that. Empty: os.TempDir().
	Scratch string

	// Grace is the time between SIGTERM and SIGKILL at the deadline. Default 10 s (T1).
	Grace time.Duration

	unfiltered bool // tests: without the system call filter
}

// Report says what kind of view was built. It goes into the run record.
type Report struct {
	Isolation       string   `json:"isolation"`        // "private" or "host"
	Home            string   `json:"home"`             // "overlay", "overlay-memory", "empty", "none", "host"
	HomeReason      string   `json:"home_reason"`      // why it isn't an overlay
	Network         string   `json:"network"`          // "host" or "none"
	AbstractSockets string   `json:"abstract_sockets"` // "private" (own network), "fenced" (landlock) or "shared"
	Covered         []string `json:"covered"`          // paths covered in the view
	Absent          []string `json:"absent"`           // the host's mounts that are not in the view
	Cgroup          string   `json:"cgroup"`           // "v2", "v1", "hybrid" or "none"
	Notes           []string `json:"notes"`
}

// reportLines bounds each list of a report: it has to fit into a message and a run record.
const reportLines = 200

func (r *Report) bounded() *Report {
	c := *r
	for _, list := range []*[]string{&c.Covered, &c.Absent, &c.Notes} {
		if n := len(*list); n > reportLines {
			*list = append((*list)[:reportLines:reportLines], fmt.Sprintf("… and %d more", n-reportLines))
		}
	}
	return &c
}

// Status is how a program ended.
type Status struct {
	Code      int           // the exit status for the caller: the program's own, 128+n, or 124
	Signal    unix.Signal   // the signal that killed it, else 0
	Expired   bool          // the deadline was reached first
	OOMKilled bool          // the memory limit killed a process
	Started   time.Time     // the program's start
	Elapsed   time.Duration // until its end
}

// essential are the places without which no program runs: S13 refuses to hide what covers them.
func essential(homes []string) []string {
	e := []string{"/", "/usr"}
	for _, h := range homes {
		if h != "" {
			e = append(e, path.Clean(h))
		}
	}
	return e
}

func (s *Spec) withDefaults() (Spec, error) {
	c := *s
	if len(c.Args) == 0 || c.Args[0] == "" {
		return c, &SpecError{Field: "Args", Problem: "no program named"}
	}
	if c.Network == "" {
		c.Network = NetworkHost
	}
	if c.Network != NetworkHost && c.Network != NetworkNone {
		return c, &SpecError{Field: "Network", Problem: fmt.Sprintf("unknown network %q", c.Network)}
	}
	if c.Hostname == "" {
		c.Hostname = "tine"
	}
	if c.Umask == 0 {
		c.Umask = 0o022
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Home.Mode == "" {
		c.Home.Mode = HomePrivate
	}
	for _, w := range c.Workspaces {
		if err := absolute("Workspaces", w.Target); err != nil {
			return c, err
		}
		if w.Mount == nil && w.Path == "" {
			return c, &SpecError{Field: "Workspaces", Problem: w.Target + ": neither a mount nor a path"}
		}
	}
	for _, b := range c.Binds {
		if err := absolute("Binds", b.Target); err != nil {
			return c, err
		}
	}
	for _, f := range c.Files {
		if err := absolute("Files", f.Path); err != nil {
			return c, err
		}
		if !below(f.Path, "/run/tine") && !below(f.Path, "/run/secrets") {
			return c, &SpecError{Field: "Files", Problem: f.Path + " is not below /run/tine or /run/secrets"}
		}
	}
	if c.Dir == "" {
		c.Dir = "/"
		if len(c.Workspaces) > 0 {
			c.Dir = c.Workspaces[0].Target
		}
	}
	if err := absolute("Dir", c.Dir); err != nil {
		return c, err
	}
	if c.Home.Path != "" {
		if err := absolute("Home", c.Home.Path); err != nil {
			return c, err
		}
	}
	if c.Limits.Memory < 0 || c.Limits.CPUs < 0 || c.Limits.Pids < 0 {
		return c, &SpecError{Field: "Limits", Problem: "negative limit"}
	}
	return c, nil
}

func absolute(field, p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != strings.TrimRight(p, "/") && p != "/" {
		return &SpecError{Field: field, Problem: fmt.Sprintf("%q is not a clean absolute path", p)}
	}
	if strings.ContainsRune(p, 0) {
		return &SpecError{Field: field, Problem: "NUL in a path"}
	}
	return nil
}

// below reports whether p is strictly inside dir.
func below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return strings.HasPrefix(p, dir+"/")
}

// within reports whether p is dir or inside it.
func within(p, dir string) bool { return p == dir || below(p, dir) }
