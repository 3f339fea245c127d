package sidecar

// Change is one difference between two trees, in the form that documents show.
type Change struct {
	Schema string `json:"schema"`
	Status string `json:"status" doc:"A added, D deleted, M modified, T type changed, R renamed, H another name of a file that was there"`
	Path   string `json:"path"`
	// RawPath and RawFrom are set for names that are not UTF-8.
	RawPath string `json:"path_base64,omitempty" doc:"the path's bytes, where they are not UTF-8"`
	From    string `json:"from,omitempty" doc:"R: the old path; H: a name of the same file"`
	RawFrom string `json:"from_base64,omitempty" doc:"the bytes of from, where they are not UTF-8"`
	Kind    string `json:"kind" doc:"file, directory, symlink, fifo, socket, character device or block device"`

	OldMode string `json:"old_mode,omitempty" doc:"octal with the type's bits; absent when added"`
	Mode    string `json:"mode,omitempty" doc:"octal with the type's bits; absent when deleted"`
	OldSize int64  `json:"old_size" doc:"bytes"`
	Size    int64  `json:"size" doc:"bytes"`
	// What lists the attributes that differ, for M, T and R.
	What []string `json:"what,omitempty" doc:"content, mode, owner, xattrs, target, device or times"`
	// Files counts what one line stands for: the workspace's .git.
	Files int `json:"files,omitempty" doc:"how many changes this line stands for, where it is .git"`
}

// ForkDiff is what a fork changed against its base.
type ForkDiff struct {
	Fork    string   `json:"fork"`
	Base    string   `json:"base"`
	Changes []Change `json:"changes"` // by path
}

// CountFiles counts the changes that are not the workspace's .git.
func CountFiles(changes []Change) int {
	n := 0
	for _, c := range changes {
		if c.Files == 0 {
			n++
		}
	}
	return n
}
