package main

import (
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 5 << 30: "5.0 GiB", 1 << 62: "4096.0 PiB", -2048: "-2.0 KiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for s, want := range map[string]int64{"0": 0, "4096": 4096, "1K": 1024, "1k": 1024, "1.5 KiB": 1536, "2gb": 2 << 30, "3MiB": 3 << 20, "1T": 1 << 40, "10 B": 10} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "x", "1x", "-", "9999999999T", "1.2.3M", "12 parsecs"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("parseSize(%q) = %d", s, got)
		}
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 340 * time.Microsecond: "340 µs", 1234 * time.Microsecond: "1.2 ms", 73 * time.Millisecond: "73 ms",
		2346 * time.Millisecond: "2.35 s", 12345 * time.Millisecond: "12.3 s", 125 * time.Second: "2 min 05 s", 3 * time.Hour: "3 h 00 min",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%d) = %q, want %q", d, got, want)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{0: "now", 30 * time.Second: "30 s ago", 90 * time.Minute: "1 h ago", 72 * time.Hour: "3 days ago"} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	for n, want := range map[int64]string{0: "0 files", 1: "1 file", 1234567: "1,234,567 files", -1234: "-1,234 files"} {
		if got := count(n, "file"); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	if got := count(2, "entry"); got != "2 entries" {
		t.Error(got)
	}
}

func TestShownNamesCannotDriveATerminal(t *testing.T) {
	for name, want := range map[string]string{
		"plain": "plain", "ü/日本": "ü/日本", "a b": "a b", "a\nb": `"a\nb"`, "\x1b[31m": `"\033[31m"`, `q"q`: `"q\"q"`, `b\b`: `"b\\b"`, "\xff": `"\377"`, "\u202e": `"\342\200\256"`,
	} {
		if got := shown(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
