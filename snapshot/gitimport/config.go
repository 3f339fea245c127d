package gitimport

import (
	"fmt"
	"path/filepath"
	"strings"
)

// repoConfig is what an import needs to know of a repository's configuration. Nothing of it gets into a checkpoint.
type repoConfig struct {
	bare         string // "true", "false" or unset
	workTree     string
	excludesFile string
	fileMode     bool
}

// loadConfig reads the common directory's config and, with extensions.worktreeConfig, the worktree's own. It refuses
// what git itself would refuse: format versions and extensions that it doesn't know.
func (r *Repository) loadConfig() error {
	cfg, err := readSettings(filepath.Join(r.CommonDir, "config"))
	if err != nil {
		return &FormatError{r.CommonDir, "its configuration can't be read: " + reason(err)}
	}
	version := cfg.get("core", "repositoryformatversion")
	switch version {
	case "", "0", "1":
	default:
		return &FormatError{r.CommonDir, "repository format version " + version}
	}
	worktreeConfig := false
	for _, o := range cfg {
		if o.section == "remote" && o.key == "promisor" && isTrue(o.value) {
			r.Partial = true
		}
		if o.section != "extensions" || o.subsection != "" {
			continue
		}
		value := strings.ToLower(o.value)
		switch o.key {
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
				return &FormatError{r.CommonDir, "unknown extension " + o.key}
			}
		}
	}
	if worktreeConfig {
		own, err := readSettings(filepath.Join(r.GitDir, "config.worktree"))
		if err != nil {
			return &FormatError{r.GitDir, "its config.worktree can't be read: " + reason(err)}
		}
		cfg = append(cfg, own...)
	}
	r.config = repoConfig{
		bare:         strings.ToLower(cfg.get("core", "bare")),
		workTree:     cfg.get("core", "worktree"),
		excludesFile: cfg.get("core", "excludesfile"),
		fileMode:     cfg.get("core", "filemode") == "" || isTrue(cfg.get("core", "filemode")),
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

// isTrue reads git's booleans.
func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}
