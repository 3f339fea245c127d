package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"tine/snapshot/image/imagetest"
)

// A checkpoint that another process published while a check was reading segments was reported as damaged: its contents
// were not in the index that the check had begun with.
func TestCheckpointPublishedDuringACheckIsNoDamage(t *testing.T) {
	s, _ := checkStore(t)
	// Something to tell of, so that there is a call between the segments and the checkpoints.
	segs, err := filepath.Glob(s.path("segments", "*.seg"))
	if err != nil || len(segs) == 0 {
		t.Fatal(segs, err)
	}
	f, err := os.OpenFile(segs[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, segHeaderLen+recHeaderLen); err != nil {
		t.Fatal(err)
	}
	f.Close()
	reader := openStore(t, s.Dir(), Options{ReadOnly: true})
	published := false
	var problems []Problem
	_, err = reader.Check(t.Context(), CheckOptions{Full: true}, func(p Problem) {
		problems = append(problems, p)
		if published {
			return
		}
		published = true
		writer := openStore(t, s.Dir(), Options{})
		h := hold(t, writer)
		defer h.Release()
		if _, err := writer.Publish(t.Context(), draft(t, writer, imagetest.File("new", "published meanwhile", 0o644))); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !published {
		t.Fatal(err, published)
	}
	for _, p := range problems {
		if p.Path == "new" {
			t.Errorf("%s", p)
		}
	}
}
