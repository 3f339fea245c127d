package fs

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/content"
	"tine/snapshot/image"
)

// errnoTable has every error that a handler can meet, by the name under which its package exports it.
var errnoTable = map[string]struct {
	err  error
	want syscall.Errno
}{
	"overlay.IOError":      {&overlay.IOError{Op: "reading", Ino: 2, Err: unix.ENOENT}, unix.EIO},
	"overlay.CorruptError": {&overlay.CorruptError{What: "record"}, unix.EIO},
	"overlay.BrokenError":  {&overlay.BrokenError{Cause: unix.ENOSPC}, unix.EIO},
	"overlay.ServedError":  {&overlay.ServedError{Fork: "f"}, unix.EBUSY},
	"overlay.LimitError":   {&overlay.LimitError{What: "bytes", Limit: 1}, unix.EDQUOT},
	"overlay.BaseError":    {&overlay.BaseError{What: "base"}, unix.EIO},
	"content.MissingError": {&content.MissingError{Cause: unix.ENOENT}, unix.EIO},
	"content.CorruptError": {&content.CorruptError{Why: "digest"}, unix.EIO},
	"image.CorruptError":   {&image.CorruptError{}, unix.EIO},
	"image.ErrNotExist":    {image.ErrNotExist, unix.ENOENT},
	"image.VersionError":   {&image.VersionError{}, unix.EIO},
	"image.ErrClosed":      {image.ErrClosed, unix.EIO},
}

func TestErrnoOfEverySentinel(t *testing.T) {
	for _, pkg := range []string{"overlay", "snapshot/content", "snapshot/image"} {
		for _, name := range exportedErrors(t, filepath.Join("..", pkg)) {
			key := filepath.Base(pkg) + "." + name
			if _, ok := errnoTable[key]; !ok {
				t.Errorf("%s has no row in the table of errors", key)
			}
		}
	}
	for name, c := range errnoTable {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), errors.Join(io.EOF, c.err)} {
			if got := errno(err); got != c.want {
				t.Errorf("%s (%v): %v, want %v", name, err, got, c.want)
			}
		}
	}
}

func TestErrnoOfNumbers(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{unix.ENOTEMPTY, unix.ENOTEMPTY},
		{fmt.Errorf("wrapped: %w", unix.ENOSPC), unix.ENOSPC},
		{&os.PathError{Op: "open", Path: "x", Err: unix.EMFILE}, unix.EMFILE},
		{unix.ENOSYS, unix.EOPNOTSUPP},
		{fmt.Errorf("wrapped: %w", unix.ENOSYS), unix.EOPNOTSUPP},
		{syscall.Errno(512), unix.EIO}, // ERESTARTSYS
		{context.Canceled, unix.EINTR},
		{context.DeadlineExceeded, unix.EINTR},
		{errors.New("unknown"), unix.EIO},
	} {
		if got := errno(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// exportedErrors lists a package's exported Err variables and exported types with an Error method.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || d.Name.Name != "Error" {
					continue
				}
				typ := d.Recv.List[0].Type
				if p, ok := typ.(*ast.StarExpr); ok {
					typ = p.X
				}
				if id, ok := typ.(*ast.Ident); ok && id.IsExported() {
					names = append(names, id.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					v, ok := s.(*ast.ValueSpec)
					if !ok || d.Tok != token.VAR {
						continue
					}
					for _, id := range v.Names {
						if id.IsExported() && strings.HasPrefix(id.Name, "Err") {
							names = append(names, id.Name)
						}
					}
				}
			}
		}
	}
	return names
}
