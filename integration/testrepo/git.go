package testrepo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Env is the environment for running git without the user's or the system's configuration, with a fixed identity
// and fixed dates.
func Env() []string {
	env := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "TZ=UTC"}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		env = append(env, "GIT_"+who+"_NAME=Ada", "GIT_"+who+"_EMAIL=ada@example.org", "GIT_"+who+"_DATE=2021-03-04T05:06:07Z")
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") && !strings.HasPrefix(e, "LC_ALL=") && !strings.HasPrefix(e, "TZ=") {
			env = append(env, e)
		}
	}
	return env
}

// Git runs git in dir and returns its output without the last line end.
func Git(dir string, args ...string) (string, error) { return gitIn(dir, nil, args...) }

func gitIn(dir string, in io.Reader, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "init.defaultBranch=main", "-c", "gc.auto=0"}, args...)...)
	cmd.Env, cmd.Stdin = Env(), in
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
