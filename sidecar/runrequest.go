package sidecar

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SealPolicy says when a run's forks are sealed.
type SealPolicy string

const (
	SealChanged SealPolicy = "changed" // if the program started and something changed
	SealAlways  SealPolicy = "always"
	SealNever   SealPolicy = "never"
)

// RunRequest is all that a run is given. Zero values are the defaults.
type RunRequest struct {
	// One of these says what the program works on. Repo defaults to the repository around the current directory.
	Checkpoint string // id, prefix, name or git:PATH@REV
	Repo       string
	Rev        string // of Repo; default HEAD
	Fork       string // an existing fork, which is kept (fork exec)

	Args    []string
	Workdir string   // absolute, or relative to /workspace
	Env     []string // K=V, or K to take the caller's value
	User    string   // name or number, with ":group"; default the caller

	Deadline time.Duration // 0: none
	Memory   int64         // bytes; 0: no limit
	CPUs     float64       // 0: no limit
	PIDs     int64         // 0: no limit
	Network  string        // "host" (default) or "none"

	// WritableHost gives the isolation up: the program sees the host as it is, may write to it, and nothing is hidden.
	WritableHost bool

	Seal   SealPolicy
	Name   string // of the run, of its fork if that is kept, and of the sealed checkpoint
	Force  bool   // takes the name away from what has it
	Labels map[string]string
	Keep   bool       // the fork stays
	Pin    bool       // the base stays pinned after the run
	Retain *time.Time // and so it does until then

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool

	Progress Progress
	// Started is called when the program is about to run: progress ends there, and signals are the program's from then on.
	Started func()
	// Signals are passed on to the program.
	Signals <-chan unix.Signal
}

const workspaceDir = "/workspace"

// inherited are the variables that a program gets from the caller's environment without being told: how to find
// programs, who it is (also in commits), and how to talk to the terminal. Everything else may be a secret, so it is named with --env.
var inherited = []string{
	"PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment builds the program's whole environment.
func (r *RunRequest) environment(who identity, dir string) ([]string, error) {
	vars := map[string]string{"PATH": defaultPath, "HOME": who.home, "USER": who.name, "LOGNAME": who.name, "SHELL": who.shell, "PWD": dir}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		if slices.Contains(inherited, k) || strings.HasPrefix(k, "LC_") {
			vars[k] = v
		}
	}
	for _, kv := range r.Env {
		k, v, ok := strings.Cut(kv, "=")
		if k == "" {
			return nil, &RequestError{"--env", fmt.Sprintf("%q: give KEY=VALUE, or KEY to pass on your own value", kv)}
		}
		if !ok {
			v, ok = os.LookupEnv(k)
			if !ok {
				continue
			}
		}
		vars[k] = v
	}
	var env []string
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// workdir is where the program starts, in its view.
func (r *RunRequest) workdir() string {
	if r.Workdir == "" {
		return workspaceDir
	}
	if path.IsAbs(r.Workdir) {
		return path.Clean(r.Workdir)
	}
	return path.Join(workspaceDir, r.Workdir)
}

func (r *RunRequest) validate() error {
	if len(r.Args) == 0 {
		return &RequestError{"PROGRAM", "name a program after --"}
	}
	given := 0
	for _, s := range []string{r.Checkpoint, r.Repo, r.Fork} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return &RequestError{"SOURCE", "give one of --checkpoint and --repo"}
	}
	if r.Rev != "" && (r.Checkpoint != "" || r.Fork != "") {
		return &RequestError{"--rev", "only a repository has revisions"}
	}
	switch r.Seal {
	case "":
		r.Seal = SealChanged
	case SealChanged, SealAlways, SealNever:
	default:
		return &RequestError{"--seal", fmt.Sprintf("%q: use changed, always or never", r.Seal)}
	}
	switch r.Network {
	case "":
		r.Network = "host"
	case "host", "none":
	default:
		return &RequestError{"--network", fmt.Sprintf("%q: use host or none", r.Network)}
	}
	if r.Deadline < 0 || r.Memory < 0 || r.CPUs < 0 || r.PIDs < 0 {
		return &RequestError{"limits", "a limit is positive"}
	}
	return nil
}

// RequestError is a request that makes no sense; Field is the flag or argument to mend.
type RequestError struct{ Field, Problem string }

func (e *RequestError) Error() string { return e.Field + ": " + e.Problem }

// identity is who a program runs as.
type identity struct {
	uid, gid          uint32
	groups            []uint32
	name, home, shell string
}

// resolveUser reads "", "USER" or "USER:GROUP", by names or numbers. A number that nobody has is fine.
func resolveUser(spec string) (identity, error) {
	who, group, hasGroup := strings.Cut(spec, ":")
	if who == "" {
		who = strconv.Itoa(os.Geteuid())
	}
	id := identity{home: "/", shell: "/bin/sh"}
	u, err := user.Lookup(who)
	if err != nil {
		u, err = user.LookupId(who)
	}
	switch n, nerr := strconv.ParseUint(who, 10, 32); {
	case err == nil:
		uid, e1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, e2 := strconv.ParseUint(u.Gid, 10, 32)
		if e1 != nil || e2 != nil {
			return id, &RequestError{"--user", fmt.Sprintf("%q has the ids %s:%s", who, u.Uid, u.Gid)}
		}
		id.uid, id.gid, id.name, id.home = uint32(uid), uint32(gid), u.Username, u.HomeDir
		if ids, err := u.GroupIds(); err == nil && !hasGroup {
			for _, s := range ids {
				if g, err := strconv.ParseUint(s, 10, 32); err == nil && uint32(g) != id.gid {
					id.groups = append(id.groups, uint32(g))
				}
			}
		}
	case nerr == nil:
		id.uid, id.gid, id.name = uint32(n), uint32(n), who
	default:
		return id, &RequestError{"--user", fmt.Sprintf("there is no user %q", who)}
	}
	if home := os.Getenv("HOME"); spec == "" && path.IsAbs(home) {
		id.home = path.Clean(home) // the caller's own idea of it
	}
	if hasGroup {
		if g, err := user.LookupGroup(group); err == nil {
			group = g.Gid
		}
		n, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return id, &RequestError{"--user", fmt.Sprintf("there is no group %q", group)}
		}
		id.gid = uint32(n)
	}
	return id, nil
}
