package export

import (
	"archive/tar"
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"
)

// sparseHeader writes the two headers (PAX records, then ustar) of a sparse file with size bytes, of which stored bytes follow
// in the archive.
func (t *tarWriter) sparseHeader(h *tar.Header, size, stored int64) error {
	records := map[string]string{
		"GNU.sparse.major":    "1",
		"GNU.sparse.minor":    "0",
		"GNU.sparse.name":     h.Name,
		"GNU.sparse.realsize": strconv.FormatInt(size, 10),
		"mtime":               paxTime(h.ModTime.Unix(), h.ModTime.Nanosecond()),
		"uid":                 strconv.Itoa(h.Uid),
		"gid":                 strconv.Itoa(h.Gid),
		"size":                strconv.FormatInt(stored, 10),
		// What an unpacker without sparse files makes of it has a name that says so.
		"path": path.Join(path.Dir(h.Name), "GNUSparseFile.0", path.Base(h.Name)),
	}
	for k, v := range h.PAXRecords {
		records[k] = v
	}
	keys := make([]string, 0, len(records))
	for k := range records {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var body strings.Builder
	for _, k := range keys {
		body.WriteString(paxRecord(k, records[k]))
	}
	text := body.String()
	if err := t.raw(ustar("PaxHeaders.0/sparse", 'x', 0o644, int64(len(text)))); err != nil {
		return err
	}
	if err := t.raw([]byte(text + strings.Repeat("\x00", -len(text)&511))); err != nil {
		return err
	}
	return t.raw(ustar("GNUSparseFile.0/file", '0', h.Mode, stored))
}

func (t *tarWriter) raw(b []byte) error {
	_, err := t.out.Write(b)
	return err
}

// paxTime is seconds and fraction; negative times round down in seconds, as in struct timespec.
func paxTime(sec int64, nsec int) string {
	if nsec == 0 {
		return strconv.FormatInt(sec, 10)
	}
	sign := ""
	if sec < 0 {
		sign, sec, nsec = "-", -(sec + 1), 1e9-nsec
	}
	return sign + strings.TrimRight(fmt.Sprintf("%d.%09d", sec, nsec), "0")
}

// paxRecord is "LENGTH KEY=VALUE\n", LENGTH counting itself.
func paxRecord(k, v string) string {
	n := len(k) + len(v) + 3
	total := n + len(strconv.Itoa(n))
	if len(strconv.Itoa(total)) != len(strconv.Itoa(n)) {
		total = n + len(strconv.Itoa(total))
	}
	return strconv.Itoa(total) + " " + k + "=" + v + "\n"
}

// ustar is a header block whose name, owner and times come from PAX records.
func ustar(name string, typ byte, mode, size int64) []byte {
	b := make([]byte, 512)
	copy(b, name)
	octal(b[100:108], mode)
	octal(b[108:116], 0)
	octal(b[116:124], 0)
	octal(b[124:136], size)
	octal(b[136:148], 0)
	b[156] = typ
	copy(b[257:], "ustar\x0000")
	copy(b[148:156], "        ")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// octal fills the field; what doesn't fit is in a PAX record.
func octal(field []byte, v int64) {
	s := strconv.FormatInt(v, 8)
	if len(s) > len(field)-1 {
		s = "0"
	}
	copy(field, strings.Repeat("0", len(field)-1-len(s))+s)
}
