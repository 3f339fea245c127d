package seal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot"
	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
	"tine/snapshot/image"
)

// L1: each operation of a seal fails in each way. The store has the base alone or the whole new checkpoint, and the fork goes on
// and can be sealed again, by a store that was opened anew (a failed sync makes one read-only).
func TestL1_EachOperationOfASealFails(t *testing.T) {
	for _, when := range []fault.When{fault.Before, fault.Half, fault.After} {
		n := 1
		for ; ; n++ {
			f := fault.New(durable.OS)
			b := newBenchOn(t, f, func(ib *image.Builder, put func(ino uint64, mode uint32, data []byte)) {
				put(1, 0o040755, nil)
				for i := range uint64(40) {
					put(2+i, 0o100644, fmt.Appendf(nil, "file %d", i))
					ib.AddEntry(1, fmt.Sprint("f", i), 2+i)
				}
			})
			b.write(b.ino("f3"), []byte("changed"), 2)
			b.put(1, "object", bytes.Repeat([]byte("o"), 300000))
			v, err := b.fork.Rotate(overlay.NewLayerID())
			b.must(err)
			f.FailAt(n, when, unix.ENOSPC)
			r, err := View(context.Background(), b.store, v, Options{Provenance: snapshot.Provenance{Kind: "seal"}})
			failed := f.Failed()
			f.Heal()
			if err == nil {
				b.same(v, r)
			}
			// Somebody else sees nothing or the whole.
			other, oerr := snapshot.Open(b.store.Dir(), snapshot.Options{})
			b.must(oerr)
			list, oerr := other.List()
			b.must(oerr)
			if err == nil && len(list) != 2 || len(list) > 2 {
				t.Fatalf("operation %d: %d checkpoints, %v", n, len(list), err)
			}
			for _, c := range list {
				if _, oerr := other.Check(context.Background(), snapshot.CheckOptions{Checkpoint: c.ID, Full: true}, func(p snapshot.Problem) { t.Errorf("operation %d: %v", n, p) }); oerr != nil {
					t.Fatal(oerr)
				}
			}
			again, err := View(context.Background(), other, v, Options{})
			if err != nil {
				t.Fatalf("operation %d failed, and so does the next seal: %v", n, err)
			}
			if r.Changed && again.Checkpoint.ID != r.Checkpoint.ID {
				t.Fatal("another id")
			}
			b.write(b.ino("f3"), []byte("the fork goes on"), 0)
			v.Close()
			b.fork.Close()
			other.Close()
			b.store.Close()
			os.RemoveAll(b.store.Dir())
			if !failed {
				break
			}
		}
		if n < 15 {
			t.Errorf("a seal has only %d operations", n)
		}
	}
}
