package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// CopyRange copies n bytes from one file to another, or within one, by sharing them: nothing is read or written. It
// copies fewer where the source ends. Ranges of one file that overlap are EINVAL.
func (f *Fork) CopyRange(c Caller, in uint64, inOff int64, out uint64, outOff, n int64) (int64, error) {
	if c.Resent {
		f.mu.RLock()
		v, ok := f.replies.find(c.Conn, c.Unique)
		f.mu.RUnlock()
		if ok {
			return int64(v), nil
		}
		c.Resent = false
	}
	var done int64
	_, err := f.change(&c, func(w *writer) (Attr, error) {
		var err error
		done, err = w.copyRange(&c, in, inOff, out, outOff, n)
		return Attr{}, err
	})
	if err != nil {
		return 0, err
	}
	return done, nil
}

func (w *writer) copyRange(c *Caller, in uint64, inOff int64, out uint64, outOff, n int64) (int64, error) {
	if inOff < 0 || outOff < 0 || n < 0 {
		return 0, unix.EINVAL
	}
	src, err := w.file(in)
	if err != nil {
		return 0, err
	}
	dst, err := w.file(out)
	if err != nil {
		return 0, err
	}
	n = min(n, src.size-inOff)
	if n <= 0 {
		return 0, nil
	}
	if outOff > maxSize-n {
		return 0, unix.EFBIG
	}
	if in == out && inOff < outOff+n && outOff < inOff+n {
		return 0, unix.EINVAL
	}
	if err := w.checkBytes(growth(dst, outOff, outOff+n)); err != nil {
		return 0, err
	}
	e := w.rec.Add(journal.Clone)
	e.Ino, e.Off, e.Len, e.Dst, e.DstOff, e.Flags = in, inOff, n, out, outOff, journal.FlagTouch
	w.planKill(c, dst, c.UID != 0)
	if err := w.commit(c, uint64(n)); err != nil {
		return 0, err
	}
	w.event(c, Event{Ino: out})
	return n, nil
}
