package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"tine/snapshot/durable"
)

// A name is STORE/names/<name, escaped as in a URL's path>: the checkpoint's id and a line break.

// maxName is the longest name in bytes: escaped it has at most three times as many, within a file name's 255.
const maxName = 80

// minPrefix is the fewest digits that an id can be shortened to.
const minPrefix = 4

// CheckName says why s can't be a new name, nil if it can.
func CheckName(s string) error {
	if err := checkNamed(s); err != nil {
		return err
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "." || part == ".." {
			return fmt.Errorf("the name %q has the part %q, which means a directory", s, part)
		}
	}
	if len(s) >= minPrefix && len(s) <= 64 && isHex(s) {
		return fmt.Errorf("the name %q looks like an id: %d to 64 digits of 0-9 and a-f and nothing else; add another letter", s, minPrefix)
	}
	return nil
}

// checkNamed says why s can't have been made a name, by this or an earlier release.
func checkNamed(s string) error {
	switch {
	case s == "" || len(s) > maxName:
		return fmt.Errorf("a name has 1 to %d bytes, %q has %d", maxName, s, len(s))
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("the name %q has a space or a control character", s)
	case s[0] == '-' || s[0] == '.' || s[0] == '@':
		return fmt.Errorf("the name %q begins with %q", s, s[0])
	case strings.HasPrefix(s, "git:"):
		return fmt.Errorf("the name %q would mean a git revision", s)
	case isID(s):
		return fmt.Errorf("the name %q looks like a checkpoint id", short(s))
	}
	return nil
}

func (s *Store) namePath(name string) string { return s.path("names", url.PathEscape(name)) }

// Tag gives a checkpoint (a full id) a name. One that names another checkpoint is a *NameTakenError unless force is set.
func (s *Store) Tag(id, name string, force bool) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	if _, err := s.load(id); err != nil {
		return err
	}
	if _, err := s.mkdir("names"); err != nil {
		return err
	}
	out, err := s.writer()
	if err != nil {
		return err
	}
	data := id + "\n"
	if force {
		err = out.WriteFile(s.namePath(name), []byte(data), 0o444)
	} else {
		err = out.WriteNew(s.namePath(name), strings.NewReader(data), 0o444)
	}
	if errors.Is(err, fs.ErrExist) {
		had, nerr := s.named(name)
		if nerr == nil && had == id {
			return nil
		}
		return &NameTakenError{Name: name, Checkpoint: had}
	}
	if err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	return nil
}

// Untag removes a name.
func (s *Store) Untag(name string) error {
	if err := s.writable(); err != nil {
		return err
	}
	err := s.fs.Remove(s.namePath(name))
	if errors.Is(err, fs.ErrNotExist) || checkNamed(name) != nil {
		return fmt.Errorf("name %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return err
	}
	return s.fs.SyncDir(s.path("names"))
}

// named returns the checkpoint id that a name stands for.
func (s *Store) named(name string) (string, error) {
	data, err := durable.ReadFile(s.fs, s.namePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("name %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(data), "\n")
	if !isID(id) {
		return "", fmt.Errorf("the name %q is damaged", name)
	}
	return id, nil
}

// Name is one name and the checkpoint that it stands for.
type Name struct{ Name, Checkpoint string }

// Names lists all names, sorted.
func (s *Store) Names() ([]Name, error) {
	ents, err := s.readDir("names")
	if err != nil {
		return nil, err
	}
	var list []Name
	for _, e := range ents {
		name, err := url.PathUnescape(e.Name())
		if err != nil || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			continue
		}
		id, err := s.named(name)
		if errors.Is(err, ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Name{name, id})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}
