package sidecar

import (
	"os/exec"
	"strings"
	"testing"

	"tine/overlay/registry"
)

func TestShellWords(t *testing.T) {
	if got := ShellWord("/mnt/a-b_c.d"); got != "/mnt/a-b_c.d" {
		t.Error(got)
	}
	for _, s := range []string{"", "/mnt/my fork", "it's", "$HOME", "a;b", "*", "~", "é", `"`, "a\nb", "#x"} {
		out, err := exec.Command("sh", "-c", "printf %s "+ShellWord(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q: %s gives %q %v", s, ShellWord(s), out, err)
		}
	}
}

func TestRemediesQuotePaths(t *testing.T) {
	err := servedRefusal(registry.Fork{ID: strings.Repeat("0", 32)}, ForkStatus{PID: 1, Mount: "/mnt/my fork"})
	if !strings.Contains(err.Error(), "umount '/mnt/my fork'") {
		t.Error(err)
	}
}
