package testrepo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Large makes a bare repository at dir with a history of four commits whose last one has exactly files files: source
// text of 100 bytes to 16 KiB in some thousand directories, a few executable scripts and symlinks.
//
// Its blobs are stored whole, not as deltas: tests damage single blobs in the pack.
func Large(dir string, files int) error {
	text, err := corpus()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := Git(dir, "init", "-q", "--bare"); err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 1<<20)
		w.CloseWithError(errors.Join(writeHistory(out, files, text), out.Flush()))
	}()
	_, err = gitIn(dir, r, "-c", "core.compression=1", "fast-import", "--quiet", "--depth=0")
	return errors.Join(err, r.Close())
}

// corpus is some megabytes of real source text.
func corpus() ([]byte, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	var text []byte
	err = filepath.WalkDir(filepath.Join(string(root[:len(root)-1]), "src", "net"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(p, ".go") {
			return err
		}
		b, err := os.ReadFile(p)
		text = append(text, b...)
		return err
	})
	if err == nil && len(text) < 1<<20 {
		err = errors.New("the Go source tree has no src/net to take text from")
	}
	return text, err
}

var (
	areas = []string{"auth", "billing", "catalog", "delivery", "events", "gateway", "identity", "ledger", "mail", "orders", "search", "stock"}
	parts = []string{"api", "cache", "client", "config", "handler", "internal", "model", "queue", "store", "worker"}
)

// path of the nth file: about twelve files in a directory.
func path(n int) string {
	d := n / 12
	return fmt.Sprintf("services/%s/%s/pkg%03d/file_%02d.go", areas[d%len(areas)], parts[d/len(areas)%len(parts)], d/len(areas)/len(parts), n%12)
}

type history struct {
	out  *bufio.Writer
	text []byte
	r    *rand.Rand
}

func writeHistory(out *bufio.Writer, files int, text []byte) error {
	h := history{out, text, rand.New(rand.NewPCG(uint64(files), 7))}
	const special = 2 // README.md and .gitignore
	n := files - special
	first, second := n*7/10, n*9/10
	h.commit("Start")
	h.file("README.md", "100644")
	h.data(".gitignore", "100644", []byte("*.o\n/build/\n"))
	h.files(0, first)
	h.commit("More services")
	h.files(first, second)
	h.commit("Rework")
	for i := 0; i < n; i += 50 {
		if i < second {
			h.nth(i)
		}
	}
	h.commit("The rest")
	h.files(second, n)
	return nil
}

// when is the commits' date in Unix seconds.
const when = 1_600_000_000

func (h *history) commit(message string) {
	fmt.Fprintf(h.out, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata %d\n%s\n", when, len(message), message)
}

func (h *history) files(from, to int) {
	for i := from; i < to; i++ {
		h.nth(i)
	}
}

func (h *history) nth(i int) {
	p := path(i)
	switch {
	case i%400 == 399:
		h.data(strings.TrimSuffix(p, ".go"), "120000", []byte("file_00.go"))
	case i%200 == 199:
		h.file(strings.TrimSuffix(p, ".go")+".sh", "100755")
	default:
		h.file(p, "100644")
	}
}

// file writes text of a size as sources have: most are small, few are large.
func (h *history) file(path, mode string) {
	size := 100 + h.r.IntN(3000)
	if h.r.IntN(4) == 0 {
		size += h.r.IntN(13000)
	}
	start := h.r.IntN(len(h.text) - size)
	h.data(path, mode, append([]byte("// "+path+"\n"), h.text[start:start+size]...))
}

func (h *history) data(path, mode string, b []byte) {
	fmt.Fprintf(h.out, "M %s inline %s\ndata %d\n", mode, path, len(b))
	h.out.Write(b)
	h.out.WriteByte('\n')
}
