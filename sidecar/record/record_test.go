package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine/snapshot/durable"
)

func TestRecordsComeBackNewestFirst(t *testing.T) {
	d := Dir{FS: durable.OS, Path: filepath.Join(t.TempDir(), "runs")}
	self, err := Self()
	if err != nil || !self.Alive() {
		t.Fatalf("self %+v, %v", self, err)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for i, state := range []State{Exited, Running, Running} {
		r := &Run{ID: NewID(), State: state, Started: start.Add(time.Duration(i) * time.Second), Host: self}
		if i == 2 {
			r.Host.Start++ // its process is gone, another has the number
		}
		if err := d.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := d.List()
	if err != nil || len(runs) != 3 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if runs[0].State != Lost || runs[1].State != Running || runs[2].State != Exited {
		t.Errorf("states %s %s %s", runs[0].State, runs[1].State, runs[2].State)
	}
	if err := d.Remove(runs[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(runs[0].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
	if err := d.Remove(runs[0].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestDamagedRecordIsNamedAndTheOthersListed(t *testing.T) {
	d := Dir{FS: durable.OS, Path: filepath.Join(t.TempDir(), "runs")}
	if err := d.Write(&Run{ID: NewID(), State: Exited}); err != nil {
		t.Fatal(err)
	}
	bad := NewID()
	if err := os.WriteFile(d.file(bad), []byte(`{"schema":"tine.run/v9","run":"`+bad+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := d.List()
	if len(runs) != 1 || err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "tine.run/v9") {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

func TestDigestIsOfCanonicalJSON(t *testing.T) {
	a, err := Digest(map[string]any{"b": 1, "a": "ü"})
	if err != nil {
		t.Fatal(err)
	}
	const golden = "4e7ff4080b1a00acdaf71eb0cdf2d504aa8068bbb375c002eac2df3f064047a7"
	b, _ := Digest(struct {
		A string `json:"a"`
		B int    `json:"b"`
	}{"ü", 1})
	if a != b || a != golden {
		t.Errorf("%s, %s", a, b)
	}
}
