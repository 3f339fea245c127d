package pin

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot/durable"
)

func TestG1_PinLivesFromIntentToRelease(t *testing.T) {
	d := Dir{FS: durable.OS, Path: filepath.Join(t.TempDir(), "pins")}
	if pins, err := d.List(); err != nil || pins != nil {
		t.Fatalf("before the first: %v, %v", pins, err)
	}
	c := strings.Repeat("ab", 32)
	p, err := d.Intend(c, "run:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.Intend(c, "run:2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Confirm(p.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Doubt(q.ID); err != nil {
		t.Fatal(err)
	}
	pins, err := d.List()
	if err != nil || len(pins) != 2 || pins[0].State != Confirmed || pins[1].State != Ambiguous || pins[0].Checkpoint != c {
		t.Fatalf("got %+v, %v", pins, err)
	}
	for range 2 { // idempotent
		if err := d.Release(p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Get(p.ID); !errors.Is(err, ErrNotFound) {
		t.Fatalf("released: %v", err)
	}
	if err := d.Confirm(p.ID); !errors.Is(err, ErrNotFound) {
		t.Fatalf("confirming a released pin: %v", err)
	}
}

func TestG1_UnreadablePinIsAnError(t *testing.T) {
	d := Dir{FS: durable.OS, Path: filepath.Join(t.TempDir(), "pins")}
	p, err := d.Intend("c", "o", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(durable.OS, d.file(p.ID), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.List(); err == nil {
		t.Fatal("a broken pin was passed over")
	}
}
