package sidecar

import (
	"context"
	"io"
)

// Workspace is a fork that can be asked and sealed: one that this process has opened, or one that another process
// serves, reached through its control socket. Results are the same. Safe for concurrent use.
type Workspace interface {
	Status(ctx context.Context) (ForkStatus, error)
	// Diff compares the fork at one instant with its base. O(changes).
	Diff(ctx context.Context, req DiffRequest) (*ForkDiff, error)
	// Render writes the same comparison as text.
	Render(ctx context.Context, req RenderRequest, w io.Writer) error
	// Export writes the fork at one instant as a tar stream to w, or into req.Dir.
	Export(ctx context.Context, req ExportRequest, w io.Writer) error
	// Seal turns the fork at one instant into a checkpoint (L1, L2).
	Seal(ctx context.Context, req SealRequest) (*SealReceipt, error)
	// Fork makes forks of this fork at one instant (O4).
	Fork(ctx context.Context, req ForkRequest) ([]CreatedFork, error)
	// Close lets go of the fork. It ends the service of one that this process has opened.
	Close() error
}

// ForkStatus is a fork as its server sees it.
type ForkStatus struct {
	Fork    string `json:"fork"`
	PID     int    `json:"pid"`     // the process that serves it
	Mount   string `json:"mount"`   // where it is mounted in the host's view, "" nowhere
	Init    int    `json:"init"`    // first process of the run that works in it, 0 without one
	Target  string `json:"target"`  // where that run sees it
	Bytes   uint64 `json:"bytes"`   // of all files
	Inodes  uint64 `json:"inodes"`  // of all kinds
	Changes uint64 `json:"changes"` // counts every change since it was opened
}

// DiffRequest asks what a fork changed. All expands the workspace's .git, which is one line otherwise.
type DiffRequest struct {
	All bool `json:"all"`
}

// Format is a textual form of changes.
type Format string

const (
	NameStatus Format = "name-status" // STATUS<tab>PATH lines, as git prints them
	Stat       Format = "stat"        // lines added and deleted in each file
	Patch      Format = "patch"       // a git-format patch that git apply takes
)

// RenderRequest asks for changes as text. All and DiffRequest's mean the same; a patch never has .git in it.
type RenderRequest struct {
	Format Format `json:"format"`
	All    bool   `json:"all"`
	Width  int    `json:"width"` // columns that Stat may use; 0: 80
}

// ExportRequest says where a fork's files go. An empty Dir asks for a tar stream. Devices makes device nodes in Dir,
// which are left out otherwise.
type ExportRequest struct {
	Dir     string `json:"dir"`
	Devices bool   `json:"devices"`
}

// SealRequest says how to seal.
type SealRequest struct {
	Name   string            `json:"name"`  // for the checkpoint; "" for none
	Force  bool              `json:"force"` // takes the name away from what has it
	Labels map[string]string `json:"labels"`
	Run    string            `json:"run"` // the run whose work it is, for the provenance; "" for none
	// Quiet says that the caller knows of no process in the fork: it was stopped (the freezer is "none"). Otherwise
	// the server looks itself, and parks mutations at the write barrier when it finds one.
	Quiet bool `json:"quiet"`
}

// SealReceipt tells what a seal did.
type SealReceipt struct {
	Schema       string  `json:"schema"`
	Fork         string  `json:"fork"`
	Checkpoint   string  `json:"checkpoint" doc:"the sealed state; the base's id when nothing changed (L2)"`
	Tree         string  `json:"tree" doc:"git tree id of the same files, .git left out"`
	Base         string  `json:"base" doc:"the checkpoint that the fork was made from"`
	Name         string  `json:"name" doc:"empty when it got none"`
	Changed      bool    `json:"changed"`
	ChangedFiles int     `json:"changed_files" doc:"files changed against the base, .git not counted"`
	Freezer      string  `json:"freezer" doc:"barrier, or none for a fork that no process used (F1)"`
	Covers       bool    `json:"covers_mapped" doc:"stores to mapped pages up to the instant are in; barrier can't promise it"`
	FrozenUS     int64   `json:"frozen_us" doc:"microseconds that writers stood still"`
	Seconds      float64 `json:"seconds" doc:"from the request to the published checkpoint"`
}

// ForkRequest describes new forks.
type ForkRequest struct {
	Count    int               `json:"count"` // at least 1
	Name     string            `json:"name"`  // with a Count above 1, NAME-1, NAME-2, …
	Force    bool              `json:"force"` // takes the name away from what has it
	Labels   map[string]string `json:"labels"`
	MaxBytes int64             `json:"max_bytes"` // 0: no limit
	MaxFiles int64             `json:"max_files"` // 0: no limit
}

// CreatedFork is the answer to fork create.
type CreatedFork struct {
	Schema     string  `json:"schema"`
	Fork       string  `json:"fork" doc:"the fork's id, 32 hex digits"`
	Name       string  `json:"name" doc:"empty when it has none"`
	Checkpoint string  `json:"checkpoint" doc:"its base"`
	Parent     string  `json:"parent" doc:"the fork it was made from, empty when that was a checkpoint"`
	Path       *string `json:"path" doc:"where it is mounted; null when no sidecar runs"`
	Micros     int64   `json:"micros" doc:"microseconds that making it took"`
}
