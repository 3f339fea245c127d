package gitimport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	gitconfig "github.com/go-git/go-git/v5/plumbing/format/config"
)

// repoConfig is what an import needs to know of a repository's configuration. Nothing of it gets into a checkpoint.
type repoConfig struct {
	bare         string // "true", "false" or unset
	workTree     string
	excludesFile string
	fileMode     bool
}

func readConfig(path string, into *gitconfig.Config) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return gitconfig.NewDecoder(f).Decode(into)
}

// loadConfig reads the common directory's config and, with extensions.worktreeConfig, the worktree's own. It refuses
// what git itself would refuse: format versions and extensions that it doesn't know.
func (r *Repository) loadConfig() error {
	cfg := gitconfig.New()
	if err := readConfig(filepath.Join(r.CommonDir, "config"), cfg); err != nil {
		return &FormatError{r.CommonDir, "its configuration can't be read: " + reason(err)}
	}
	version := cfg.Section("core").Option("repositoryformatversion")
	switch version {
	case "", "0", "1":
	default:
		return &FormatError{r.CommonDir, "repository format version " + version}
	}
	worktreeConfig := false
	for _, o := range cfg.Section("extensions").Options {
		value := strings.ToLower(o.Value)
		switch key := strings.ToLower(o.Key); key {
		case "objectformat":
			if value != "sha1" {
				return &FormatError{r.CommonDir, fmt.Sprintf("object format %s; only sha1 can be imported", value)}
			}
		case "refstorage":
			if value != "files" {
				return &FormatError{r.CommonDir, "references are stored as " + value}
			}
		case "worktreeconfig":
			worktreeConfig = isTrue(value)
		case "partialclone":
			r.Partial = true
		case "noop", "noop-v1", "preciousobjects", "relativeworktrees":
		default:
			if version == "1" { // version 0 has git ignore unknown extensions
				return &FormatError{r.CommonDir, "unknown extension " + key}
			}
		}
	}
	for _, s := range cfg.Section("remote").Subsections {
		if isTrue(s.Option("promisor")) {
			r.Partial = true
		}
	}
	if worktreeConfig {
		if err := readConfig(filepath.Join(r.GitDir, "config.worktree"), cfg); err != nil {
			return &FormatError{r.GitDir, "its config.worktree can't be read: " + reason(err)}
		}
	}
	core := cfg.Section("core")
	r.config = repoConfig{
		bare:         strings.ToLower(core.Option("bare")),
		workTree:     core.Option("worktree"),
		excludesFile: core.Option("excludesfile"),
		fileMode:     core.Option("filemode") == "" || isTrue(core.Option("filemode")),
	}
	if r.GitDir == r.CommonDir { // those settings are the main work tree's
		switch {
		case r.config.workTree != "":
			r.WorkTree = inDir(r.GitDir, r.config.workTree)
		case isTrue(r.config.bare):
			r.WorkTree = ""
		}
	} else if worktreeConfig && r.config.workTree != "" {
		r.WorkTree = inDir(r.GitDir, r.config.workTree)
	}
	return nil
}

// isTrue reads git's booleans; a key without a value is true, which go-git gives as "".
func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}
