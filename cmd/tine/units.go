package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// size formats bytes in powers of 1024.
func size(n int64) string {
	if n < 0 {
		return "-" + size(-n)
	}
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		v /= 1024
		if v < 1023.95 || unit == "PiB" {
			return fmt.Sprintf("%.1f %s", v, unit)
		}
	}
	panic("unreachable")
}

// parseSize reads "4096", "64K", "1.5GiB", "2gb"; every unit is a power of 1024. The result is in bytes.
func parseSize(s string) (int64, error) {
	t := strings.TrimSpace(s)
	i := strings.LastIndexAny(t, "0123456789.") + 1
	number, unit := t[:i], strings.ToLower(strings.TrimSpace(t[i:]))
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	shift := map[string]uint{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
	by, ok := shift[unit]
	if !ok || number == "" {
		return 0, fmt.Errorf("%q is not a size: give bytes, or a number with K, M, G or T", s)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n > (1<<63-1)>>by {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return n << by, nil
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v*float64(int64(1)<<by) >= 1<<63 {
		return 0, fmt.Errorf("%q is not a size: give bytes, or a number with K, M, G or T", s)
	}
	return int64(v * float64(int64(1)<<by)), nil
}

// span formats a duration with three digits and a unit.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// ago formats the age of a moment, coarsely.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

// count formats n with thin groups of three and its noun.
func count(n int64, noun string) string {
	if n != 1 {
		if strings.HasSuffix(noun, "y") {
			noun = strings.TrimSuffix(noun, "y") + "ies"
		} else {
			noun += "s"
		}
	}
	return grouped(n) + " " + noun
}

func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// short shortens a hex id for tables; twelve digits are unique in any store that fits on a disk.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	if id == "" {
		return "-"
	}
	return id
}
