package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers, lowest first. A package may import its own layer and lower ones; within snapshot the order is below.
var layers = []string{"snapshot", "overlay", "fs", "seed", "sidecar", "cmd"}

// inSnapshot: what each package of the store may import of the others. Anything not named here may import all of
// snapshot (gitimport, dirimport, export, ...), but is imported by none of these.
var inSnapshot = []string{"snapshot/durable", "snapshot/content", "snapshot/image", "snapshot"}

// TestImportDirection: snapshot <- overlay <- fs; {snapshot, overlay} <- seed; all <- sidecar <- cmd; only integration
// and bench look at the whole, and nothing imports them.
func TestImportDirection(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		missing(t, "needs the go command")
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v: %s", err, errs.String())
	}
	type pkg struct {
		ImportPath                         string
		Imports, TestImports, XTestImports []string
	}
	for d := json.NewDecoder(&out); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(p.ImportPath, "tine/")
		top, _, _ := strings.Cut(from, "/")
		for _, bad := range []string{"util", "utils", "common", "helpers", "types", "misc"} {
			if strings.HasSuffix("/"+from, "/"+bad) {
				t.Errorf("%s: a package is named after what it provides", from)
			}
		}
		if top != "integration" && top != "bench" && !slices.Contains(layers, top) {
			t.Errorf("%s: not one of the design's folders", from)
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			to, ours := strings.CutPrefix(imp, "tine/")
			if ours && !allowed(from, to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
}

func allowed(from, to string) bool {
	f, _, _ := strings.Cut(from, "/")
	o, _, _ := strings.Cut(to, "/")
	switch {
	case f == "integration":
		return o == "integration" // the whole is tested from outside
	case f == "bench":
		return o != "integration"
	case f == "snapshot" && o == "snapshot":
		return snapshotRank(from) >= snapshotRank(to)
	case f == "fs" && o == "seed" || f == "seed" && o == "fs":
		return false
	}
	return slices.Contains(layers, f) && slices.Contains(layers, o) && slices.Index(layers, f) >= slices.Index(layers, o)
}

func snapshotRank(p string) int {
	for i, s := range inSnapshot {
		if p == s || s != "snapshot" && strings.HasPrefix(p, s+"/") {
			return max(i, 1) // durable and content: side by side
		}
	}
	return len(inSnapshot)
}
