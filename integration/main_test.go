package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"tine/integration/ackwriter"
	"tine/integration/testrepo"
)

var (
	long   = flag.Bool("long", os.Getenv("TINE_LONG") != "", "run the long forms (or set TINE_LONG)")
	kills  = flag.Int("kills", 0, "rounds of kill -9 (default 10, with -long 50)")
	binary = flag.String("binary", "", "the tine binary to test (default: built from this module)")
)

// scratch holds everything that this process makes: below /var/tmp, which is on a disk where /tmp may not be.
var scratch string

// roleEnv makes this test binary act as a helper process.
const roleEnv = "TINE_INTEGRATION_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "ackwriter" {
		os.Exit(ackwriterMain(os.Args[1:]))
	}
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	parent := os.Getenv("TINE_TEST_DIR")
	if parent == "" {
		parent = "/var/tmp"
	}
	var err error
	if scratch, err = os.MkdirTemp(parent, "tine-integration-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer sweep(scratch)
	if err := os.Chmod(scratch, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if *binary == "" {
		*binary = filepath.Join(scratch, "tine")
		cmd := exec.Command("go", "build", "-o", *binary, "../cmd/tine")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the binary under test: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// ackwriterMain is: ROOT SEED COUNT, the log on standard output.
func ackwriterMain(args []string) int {
	seed, err1 := strconv.ParseUint(args[1], 10, 64)
	count, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return 2
	}
	if err := ackwriter.Write(args[0], seed, count, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// goSource is the repository made from the Go source tree, made at its first use. Tests only read it.
var goSource = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "go-source")
	return dir, testrepo.FromGoSource(dir)
})

// largeFiles is the size that the import's budget is measured at.
const largeFiles = 50_000

// largeRepo is the generated bare repository of largeFiles files, made at its first use.
var largeRepo = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "large.git")
	return dir, testrepo.Large(dir, largeFiles)
})

// requireRoot ends a test that can't work without root: a failure in CI, elsewhere a skip.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "needs root: it mounts file systems")
	}
}

// requireTools ends a test whose programs are not installed, like requireRoot.
func requireTools(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			missing(t, "needs the program "+n)
		}
	}
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
