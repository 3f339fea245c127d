package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/btree"

	"tine/overlay/journal"
	"tine/snapshot/image"
)

// stored is what a fork's files show of one layer.
type stored struct {
	inline int64  // where the last byte ends that shows from the journal
	blocks []span // of the data file, ordered, none touching
}

// shows reports whether all of [off, end) shows.
func (s *stored) shows(off, end int64) bool {
	lo, hi := 0, len(s.blocks)
	for lo < hi {
		if m := (lo + hi) / 2; s.blocks[m].end <= off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo < len(s.blocks) && s.blocks[lo].off <= off && end <= s.blocks[lo].end
}

// VerifyData reads what the fork stores and compares it with its checksums (O5): opening trusts the bytes that this
// boot has written, and those that a sync mark covers. It returns every fault, joined. What can't be compared: a run of the
// data file that shows in part only, and what stands before a compaction in a journal.
func (f *Fork) VerifyData(ctx context.Context) error {
	f.mu.RLock()
	state, table := f.w.s, f.table
	seen := make([]stored, len(table))
	state.nodes.Scan(func(_ uint64, n *node) bool {
		n.ext.scan(0, func(x *extent) bool {
			switch s := &seen[min(int(x.layer), len(seen)-1)]; x.kind {
			case extInline:
				s.inline = max(s.inline, x.loc+x.len)
			case extBlock:
				s.blocks = append(s.blocks, span{x.loc, x.loc + x.len})
			}
			return true
		})
		return true
	})
	live := f.log.l
	tail := f.log.tail
	f.mu.RUnlock()

	var faults []error
	for i, l := range table {
		s := &seen[i]
		if s.inline == 0 && len(s.blocks) == 0 {
			continue
		}
		s.blocks = mergeSpans(s.blocks)
		end := int64(-1)
		if l == live {
			end = tail
		}
		if err := l.verifyData(ctx, s, end, state.base); err != nil {
			faults = append(faults, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.Join(faults...)
}

// verifyData compares what shows of a layer. end is where its journal ends, -1 if that is its size.
func (l *layer) verifyData(ctx context.Context, s *stored, end int64, base image.Tree) error {
	j, err := l.acquire(fileJournal)
	if err != nil {
		return &CorruptError{Layer: l.id, What: "journal", Err: err}
	}
	defer j.done()
	if end < 0 {
		st, err := j.f.Stat()
		if err != nil {
			return &IOError{Op: "reading the journal of", Err: err}
		}
		end = st.Size()
	}
	h, err := journal.ReadHeader(j.f)
	if err != nil {
		return &CorruptError{Layer: l.id, What: "header", Err: err}
	}
	trees, _, err := l.readTrees(newState(base))
	if err != nil {
		return err
	}
	type block struct {
		ino uint64
		len int64
		crc uint32
	}
	var blocks btree.Map[int64, block] // by place; a run that was used again is replaced
	rd := journal.NewReader(j.f, &h, end)
	var rec journal.Record
	for ctx.Err() == nil {
		at, err := rd.Next(&rec)
		var bad *journal.BadRecordError
		if (err == io.EOF || errors.As(err, &bad)) && at < trees.offset {
			// A compaction has punched dead records out; what they said of the data file is lost.
			blocks.Clear()
			rd = journal.NewReaderAt(j.f, &h, end, trees.offset, trees.seq)
			continue
		}
		if err == io.EOF {
			if at < s.inline {
				return &CorruptError{Layer: l.id, What: fmt.Sprintf("journal ends at byte %d; files show bytes up to %d", at, s.inline)}
			}
			break
		}
		if bad != nil {
			if bad.Off < s.inline {
				return &CorruptError{Layer: l.id, What: "bytes that a file shows", Err: bad}
			}
			break
		}
		if err != nil {
			return &IOError{Op: "reading the journal of", Err: err}
		}
		for i := range rec.Effects {
			e := &rec.Effects[i]
			if e.Kind != journal.Block {
				continue
			}
			var over []int64
			blocks.Descend(e.Loc+e.Len-1, func(loc int64, b block) bool {
				if loc+b.len > e.Loc {
					over = append(over, loc)
				}
				return loc > e.Loc-maxRun
			})
			for _, loc := range over {
				blocks.Delete(loc)
			}
			blocks.Set(e.Loc, block{e.Ino, e.Len, e.CRC})
		}
	}
	var faults []error
	var buf []byte
	blocks.Scan(func(loc int64, b block) bool {
		if !s.shows(loc, loc+b.len) {
			return true
		}
		if int64(cap(buf)) < b.len {
			buf = make([]byte, b.len)
		}
		buf = buf[:b.len]
		err := l.readAt(fileData, buf, loc)
		if err == nil && journal.CRC(buf) != b.crc {
			err = errors.New("checksum mismatch")
		}
		if err != nil {
			faults = append(faults, &CorruptError{Layer: l.id, What: fmt.Sprintf("%d bytes of inode %d at byte %d of the data file", b.len, b.ino, loc), Err: err})
		}
		return ctx.Err() == nil
	})
	return errors.Join(faults...)
}
