package snapshot

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"tine/snapshot/durable"
)

// storeVersion is the version of the store's layout as a whole; FORMAT.md "Store".
const storeVersion = 1

const formatFile = "format"

// knownFeatures are the incompatible features that this version can handle.
var knownFeatures = map[string]bool{}

// formatInfo is the content of STORE/format.
type formatInfo struct {
	id       string // 32 hex digits, random: the store's identity
	features []string
}

func (f formatInfo) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "tine store %d\nid %s\n", storeVersion, f.id)
	for _, name := range f.features {
		fmt.Fprintf(&b, "feature %s\n", name)
	}
	return []byte(b.String())
}

// parseFormat refuses other versions and unknown features. Lines "compat ..." may be ignored.
func parseFormat(dir string, data []byte) (formatInfo, error) {
	var info formatInfo
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	rest, ok := strings.CutPrefix(lines[0], "tine store ")
	v, err := strconv.Atoi(rest)
	if !ok || err != nil {
		return info, fmt.Errorf("%s: the format file is not a tine store's", dir)
	}
	if v != storeVersion {
		return info, &VersionError{What: "the store " + dir, Got: v, Known: storeVersion}
	}
	for _, line := range lines[1:] {
		word, arg, _ := strings.Cut(line, " ")
		switch word {
		case "id":
			info.id = arg
		case "feature":
			if !knownFeatures[arg] {
				return info, &VersionError{What: "the store " + dir, Feature: arg}
			}
			info.features = append(info.features, arg)
		case "compat":
		default:
			return info, &VersionError{What: "the store " + dir, Feature: line}
		}
	}
	if b, err := hex.DecodeString(info.id); err != nil || len(b) != 16 {
		return info, fmt.Errorf("%s: the format file has no store id", dir)
	}
	return info, nil
}

// loadFormat reads STORE/format; ErrNoStore when there is none.
func loadFormat(fsys durable.FS, dir string) (formatInfo, error) {
	data, err := durable.ReadFile(fsys, filepath.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return formatInfo{}, fmt.Errorf("%s: %w", dir, ErrNoStore)
	}
	if err != nil {
		return formatInfo{}, err
	}
	return parseFormat(dir, data)
}

// createFormat makes dir a store: an empty one is its format file alone, other directories come at their first use. A
// directory that holds anything else is refused.
func createFormat(fsys durable.FS, dir string) (formatInfo, error) {
	if err := durable.MkdirAll(fsys, dir, 0o700); err != nil {
		return formatInfo{}, err
	}
	ents, err := fsys.ReadDir(dir)
	if err != nil {
		return formatInfo{}, err
	}
	for _, e := range ents {
		if !strings.HasPrefix(e.Name(), durable.TempPrefix) && e.Name() != formatFile {
			return formatInfo{}, fmt.Errorf("%s is neither a store nor empty (it has %q)", dir, e.Name())
		}
	}
	var id [16]byte
	rand.Read(id[:])
	info := formatInfo{id: hex.EncodeToString(id[:])}
	err = durable.Writer{FS: fsys}.WriteNew(filepath.Join(dir, formatFile), strings.NewReader(string(info.encode())), 0o444)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return loadFormat(fsys, dir)
	}
	return info, err
}
