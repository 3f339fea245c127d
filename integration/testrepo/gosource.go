package testrepo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FromGoSource makes a repository at dir (which must not exist) with the Go source tree's src as its files and a
// second commit on top, so that there is a history.
func FromGoSource(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(string(root[:len(root)-1]), "src")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-r", src, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", src, err, out)
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "The Go sources"},
	} {
		if _, err := Git(dir, args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "NOTES.md"), []byte("# Notes\n"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("cmd/go/main.go", filepath.Join(dir, "gomain")); err != nil {
		return err
	}
	if _, err := Git(dir, "add", "-A"); err != nil {
		return err
	}
	_, err = Git(dir, "commit", "-q", "-m", "Notes and a link")
	return err
}
