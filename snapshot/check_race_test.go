package snapshot

import (
	"os"
	"testing"

	"tine/snapshot/image/imagetest"
)

// A checkpoint that another process published while a check was reading segments was reported as damaged: its contents
// were not in the index that the check had begun with.
func TestCheckpointPublishedDuringACheckIsNoDamage(t *testing.T) {
	s, _ := checkStore(t)
	if err := os.WriteFile(s.path("segments", "0000000000000001.seg"), []byte("not a segment"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader := openStore(t, s.Dir(), Options{ReadOnly: true})
	published := false
	var problems []Problem
	_, err := reader.Check(t.Context(), CheckOptions{Full: true}, func(p Problem) {
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
		if p.Checkpoint != "" {
			t.Errorf("%s", p)
		}
	}
}
