package diff

import "testing"

func TestCollapsedGitTellsWhetherOnlyTimesDiffer(t *testing.T) {
	times := Change{Status: Modified, Path: ".git", What: Times}
	for _, c := range []struct {
		changes []Change
		want    What
	}{
		{[]Change{times, {Status: Modified, Path: ".git/refs", What: Times}, {Status: Modified, Path: "a", What: Content}}, Times},
		{[]Change{times, {Status: Added, Path: ".git/index.lock"}}, 0},
		{[]Change{{Status: Modified, Path: ".git/index", What: Content | Times}, times}, 0},
		{[]Change{times, {Status: Deleted, Path: ".git/ORIG_HEAD"}}, 0},
	} {
		if got := CollapseGit(c.changes)[0].What; got != c.want {
			t.Errorf("%v: %v", c.changes, got.Names())
		}
	}
}
