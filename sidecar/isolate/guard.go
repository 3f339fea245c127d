package isolate

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A covering lies on a file, and goes when the host removes that file; a daemon that is restarted binds its socket anew.
// So the caller looks for new sockets while a program runs, and init puts back coverings that are gone. This is the
// second line: for a moment such a file is visible. What is hidden from the start and stays is never visible.

// guardInterval is how long something new on the host may lie open. Looking costs about 0.1 ms.
const guardInterval = time.Second

// watchSockets tells init of sockets that were bound since the start, until the run ends.
func (p *Process) watchSockets() {
	if p.spec.WritableHost {
		return
	}
	known := map[string]bool{}
	for _, s := range p.sockets {
		known[s] = true
	}
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.reaped:
			return
		case <-tick.C:
		}
		var fresh []string
		for _, s := range socketsOf([]string{"/proc/self"}, nil) {
			if !known[s] {
				known[s] = true
				fresh = append(fresh, s)
			}
		}
		p.control.send(message{Op: "guard", Paths: p.withTwins(fresh)})
	}
}

// withTwins adds the other names under which the host's mounts show the files, as many as a message holds.
func (p *Process) withTwins(files []string) []string {
	if len(files) == 0 {
		return nil
	}
	mounts, err := readMounts()
	if err != nil {
		return files
	}
	all, err := planner{mounts: mounts, mountID: mountID}.makePlan(nil, files)
	if err != nil {
		return files
	}
	size := 0
	for i, f := range all.Cover {
		if size += 2*len(f) + 8; size > maxMessage/2 {
			return all.Cover[:i]
		}
	}
	return all.Cover
}

// guard is init's side: the view as it was built, seen from inside.
type guard struct {
	view  *view
	cover map[string]bool
}

// newGuard is made after the view was entered.
func newGuard(v *view) (*guard, error) {
	g := &guard{view: v, cover: map[string]bool{}}
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	v.root = root
	g.add(v.plan.Cover)
	return g, nil
}

// add takes up what lies in the host's part of the view. In the rest (workspaces, the home directory, /tmp) the program
// makes files of its own, which aren't the host's to hide.
func (g *guard) add(paths []string) {
	v := g.view
	for _, p := range paths {
		own := leaves(p) || v.home != "" && within(p, v.home)
		for _, w := range v.cfg.Workspaces {
			own = own || within(p, w.Target)
		}
		for _, b := range v.cfg.Binds {
			own = own || within(p, b.Target)
		}
		if !own {
			g.cover[p] = true
		}
	}
}

// check covers again what isn't covered any more. It runs on a thread without the program's restrictions.
func (g *guard) check(fresh []string) {
	g.add(fresh)
	for p := range g.cover {
		if !g.view.covered(p) {
			g.view.cover(p) // what fails now is tried again at the next tick
		}
	}
}

// covered reports whether a path of the view, or a directory above it, is on a covering, or isn't there at all.
func (v *view) covered(p string) bool {
	fd, err := v.open(p)
	if err != nil {
		return err == unix.ENOENT || err == unix.ENOTDIR
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Dev == v.blankDev
}
