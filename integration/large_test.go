package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"tine/integration/testrepo"
)

// importBudget: importing a commit until its fork has run a program, against `git worktree add` (DESIGN "Budgets").
const importBudget = 0.5

// TestLargeImportReadsNoBlobAndIsFast: 50,000 files. First the ratio of medians of rounds side by side, then the proof
// that no blob was read: every blob is damaged so that it can't be, and import and run still work.
func TestLargeImportReadsNoBlobAndIsFast(t *testing.T) {
	l := newLab(t)
	shared, err := largeRepo()
	l.must(err)
	l.shell(l.dir, "cp -a '"+shared+"' repo.git")
	repo := l.path("repo.git")
	rounds := 3
	if *long {
		rounds = 7
	}
	var ours, git []time.Duration
	var ids []string
	for n := range rounds {
		lab := *l
		lab.store = l.path(fmt.Sprint("store", n))
		start := time.Now()
		i := lab.importGit(repo)
		imported := time.Since(start)
		lab.ok("run", "--checkpoint", i.Checkpoint, "--", "true")
		ours = append(ours, time.Since(start))
		ids = append(ids, i.Checkpoint)
		if i.Files != largeFiles {
			t.Errorf("%d files, want %d", i.Files, largeFiles)
		}

		start = time.Now()
		if out, err := exec.Command("git", "-C", repo, "worktree", "add", "-q", "--detach", l.path("wt"), "main").CombinedOutput(); err != nil {
			t.Fatalf("git worktree add: %v: %s", err, out)
		}
		git = append(git, time.Since(start))
		t.Logf("round %d: import %v, with run %v; git worktree add %v", n, imported.Round(time.Millisecond), ours[n].Round(time.Millisecond), git[n].Round(time.Millisecond))
		if _, err := testrepo.Git(repo, "worktree", "remove", "--force", l.path("wt")); err != nil {
			t.Fatal(err)
		}
		if !*long && n == 0 && float64(ours[0]) < importBudget/2*float64(git[0]) {
			break // no noise hides such a distance; the other rounds would take minutes on a slow disk
		}
	}
	if x, y := median(ours), median(git); float64(x) > importBudget*float64(y) {
		t.Errorf("import and run %v, git worktree add %v: ratio %.2f, want at most %v", x, y, float64(x)/float64(y), importBudget)
	} else {
		t.Logf("ratio of medians %.3f", float64(x)/float64(y))
	}

	l.damageBlobs(repo)
	l.store = l.path("store-damaged")
	l.damaged = true
	i := l.importGit(repo)
	if i.Checkpoint != ids[0] {
		t.Errorf("the same commit, two ids: %s and %s", i.Checkpoint, ids[0])
	}
	r := l.run("--json", "run", "--checkpoint", i.Checkpoint, "--", "sh", "-c", "ls /workspace | wc -l; stat -c %s /workspace/README.md; ! cat /workspace/README.md")
	var record struct{ Status int }
	if err := json.Unmarshal([]byte(r.stdout), &record); err != nil || record.Status != 0 {
		t.Errorf("a run over a repository whose blobs can't be read: %v", r)
	}
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}
