package sidecar

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot"
	"tine/snapshot/content"
)

// inner are exported errors that never leave their package's callers: each is wrapped or handled below this one.
var inner = map[string]string{
	"sidecar.NotFoundError": "is sidecar.ErrNotFound",
	"sidecar.RemoteError":   "brings its own words",
	"sidecar.PendingError":  "brings its own words",
	"isolate.RefusedError":  "brings its own rule; Judge has a case for it",
	"record.Error":          "a part of a document, not an error",
	"journal.ErrNoHeader":   "handled by overlay: a journal that was cut before its header",
	"transport.ErrClosed":   "ends a connection's loop inside fs",
	"fault.ErrPowerCut":     "made by tests",
	"fault.ErrInjected":     "made by tests",
}

// TestEveryErrorHasItsWords walks every exported sentinel and error type of the project and finds it in the table.
func TestEveryErrorHasItsWords(t *testing.T) {
	known := map[string]bool{}
	for _, c := range conditions {
		if known[c.name] {
			t.Errorf("%s is in the table twice", c.name)
		}
		known[c.name] = true
		if c.summary != Inert(c.summary) || strings.Contains(c.summary, "/") || c.code == "" {
			t.Errorf("%s: the summary %q is not inert", c.name, c.summary)
		}
		if (c.class == Refused) != (c.rule != "") {
			t.Errorf("%s: refusals, and only they, name a rule", c.name)
		}
	}
	found := map[string]bool{}
	for _, top := range []string{"snapshot", "overlay", "fs", "sidecar"} {
		err := filepath.WalkDir("../"+top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, name := range exportedErrors(file) {
				found[file.Name.Name+"."+name] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range found {
		if !known[name] && inner[name] == "" {
			t.Errorf("%s has no row in the table", name)
		}
	}
	for name := range known {
		if pkg, _, _ := strings.Cut(name, "."); !found[name] && pkg != "unix" && pkg != "context" {
			t.Errorf("the table has %s, which does not exist", name)
		}
	}
}

func exportedErrors(file *ast.File) []string {
	var names []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if g.Tok == token.VAR && strings.HasPrefix(n.Name, "Err") && n.IsExported() {
						names = append(names, n.Name)
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

func TestC4_ErrorsAreInert(t *testing.T) {
	secret := "/srv/host/path"
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: secret, Err: unix.ENOENT},
		fmt.Errorf("%s: %w", secret, unix.ENOSPC),
		&Refusal{Rule: "S13", Code: "x", Summary: strings.Repeat("long\n", 100), Detail: secret},
		&PendingError{Token: "t", What: secret, Err: &os.PathError{Op: "rm", Path: secret, Err: unix.EIO}},
		fmt.Errorf("reading: %w", &content.MissingError{Cause: errors.New(secret)}),
		&snapshot.VersionError{What: "the store " + secret},
		errors.New(secret),
	} {
		v := Judge(err)
		if strings.Contains(v.Summary, secret) || len([]rune(v.Summary)) > 200 || strings.Contains(v.Summary, "\n") || v.Code == "" {
			t.Errorf("%v: %+v", err, v)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		err   error
		class Class
		code  string
		rule  string
		token string
	}{
		{&Refusal{Rule: "S13", Code: "source_covers_host"}, Refused, "source_covers_host", "S13", ""},
		{fmt.Errorf("tag: %w", &snapshot.NameTakenError{Name: "n"}), Refused, "name_taken", "names", ""},
		{&PendingError{Token: "run:1", What: "fork"}, Pending, "cleanup_pending", "", "run:1"},
		{&PendingError{Token: "run:1", What: "fork", Err: unix.ENOSPC}, Pending, "no_space", "", "run:1"},
		{&NotFoundError{"fork", "x"}, Failed, "not_found", "", ""},
		{&RequestError{"--env", "no"}, Usage, "usage", "", ""},
		{fmt.Errorf("write: %w", unix.ENOSPC), Failed, "no_space", "", ""},
		{errors.New("anything"), Failed, "failed", "", ""},
	} {
		v := Judge(c.err)
		if v.Class != c.class || v.Code != c.code || v.Rule != c.rule || v.Token != c.token {
			t.Errorf("%v: %+v", c.err, v)
		}
	}
}
