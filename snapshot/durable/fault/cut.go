package fault

import (
	"math/rand/v2"
	"os"
	"path/filepath"
)

// sector (512 bytes) is what a disk writes whole or not at all; a torn write ends at a multiple of it.
const sector = 512

// Cut makes dst, a directory that doesn't exist, what the recorded tree may look like when the power fails after n
// events. What was synced is there. Of the rest, rng decides: a write that its file's sync doesn't cover is kept, lost
// or torn, each by itself; of the names that no sync of their directory covers, a prefix is kept, since file systems
// write them in order. Two names of one file become two files. A nil rng loses all that may be lost.
func (r *Recording) Cut(dst string, n int, rng *rand.Rand) error {
	events := r.events[:n]
	synced := map[int]int{} // file -> events of it before this one are durable
	names := 0              // events of names before this one are durable
	for i := range events {
		switch e := &events[i]; e.do {
		case syncFile:
			synced[e.id] = i
		case syncDir:
			for j := i - 1; j >= names; j-- {
				if events[j].isName() && events[j].dir == e.id {
					names = j + 1
					break
				}
			}
		}
	}
	if rng != nil {
		names += rng.IntN(n - names + 1)
	}
	state := map[int]*inode{}
	for id, in := range r.live {
		c := &inode{perm: in.perm, target: in.target}
		if in.kids != nil {
			c.kids = map[string]int{}
		}
		state[id] = c
	}
	for i := range events {
		e := &events[i]
		switch {
		case e.isName() && i < names:
			if e.do == unname {
				delete(state[e.dir].kids, e.name)
				continue
			}
			if e.dir2 != 0 {
				delete(state[e.dir2].kids, e.name2)
			}
			state[e.dir].kids[e.name] = e.id
		case e.do == mode && i < names:
			state[e.id].perm = e.perm
		case e.isData():
			state[e.id].apply(e, i < synced[e.id], rng)
		}
	}
	return writeOut(dst, state, 1)
}

// apply changes a file as an event says, or by rng not quite when that isn't durable.
func (n *inode) apply(e *event, durable bool, rng *rand.Rand) {
	data := e.data
	if !durable {
		if rng == nil {
			return
		}
		switch rng.IntN(3) {
		case 0:
			return
		case 1:
			if e.do == write {
				data = data[:rng.IntN(len(data)/sector+1)*sector]
			}
		}
	}
	end := e.off + int64(len(data))
	switch {
	case e.do == size && int64(len(n.data)) > e.off:
		n.data = n.data[:e.off:e.off]
	case int64(len(n.data)) < end:
		n.data = append(n.data, make([]byte, end-int64(len(n.data)))...)
	}
	copy(n.data[min(e.off, int64(len(n.data))):], data)
}

func writeOut(path string, state map[int]*inode, id int) error {
	n := state[id]
	switch {
	case n.target != "":
		return os.Symlink(n.target, path)
	case n.kids == nil:
		if err := os.WriteFile(path, n.data, 0o600); err != nil {
			return err
		}
		return os.Chmod(path, n.perm)
	}
	if err := os.Mkdir(path, n.perm|0o700); err != nil {
		return err
	}
	for name, kid := range n.kids {
		if err := writeOut(filepath.Join(path, name), state, kid); err != nil {
			return err
		}
	}
	return nil
}
