// Package record keeps one durable document for each run: what it was given, where, how it ended and what it left.
// A record holds no scope, handle, token or secret (C6).
//
// STORE/runs/<id>.json is written before the run's program starts and replaced when something is known; a reader sees
// one version or the next. A record that says "running" while its process is gone is shown as "lost".
package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gowebpki/jcs"
)

// Schema of the documents that this version writes. Fields may be added under one schema, never removed or changed.
const Schema = "tine.run/v1"

// State is what is known of a run.
type State string

const (
	Starting State = "starting" // before its program runs
	Running  State = "running"
	Exited   State = "exited"   // by itself; Status is its status
	Killed   State = "killed"   // by a signal; Status is 128 and its number
	Deadline State = "deadline" // stopped at its deadline; Status is 124
	Failed   State = "failed"   // tine failed or refused; Error says why
	Lost     State = "lost"     // the process that served it is gone; never stored
)

// Run is one launch of a program over one or more forks.
type Run struct {
	Schema string            `json:"schema"`
	ID     string            `json:"run" doc:"the run's id, 32 hex digits"`
	Name   string            `json:"name" doc:"empty when it has none"`
	Labels map[string]string `json:"labels" doc:"what --label gave"`
	State  State             `json:"state" doc:"starting, running, exited, killed, deadline, failed or lost"`
	Status *int              `json:"status" doc:"the program's: its own, 128+n, 124 at the deadline, 125 to 127 when it was not started; null before the end"`
	// OOMKilled explains a status of 137, and output that is not all there.
	OOMKilled bool   `json:"oom_killed" doc:"the memory limit killed a process of the run"`
	Error     *Error `json:"error" doc:"what tine failed at, also after the program ended; null when it did not"`
	Pending   bool   `json:"pending" doc:"a clean-up is still to come"`

	Command   Command  `json:"command"`
	Systems   []System `json:"systems" doc:"the first is primary, at /workspace"`
	Runtime   string   `json:"runtime" doc:"local or containerd"`
	Isolation string   `json:"isolation" doc:"namespaces, or host where --writable-host lifted it (S13)"`
	Home      string   `json:"home" doc:"overlay, empty or host: what the program saw as its home"`
	Notes     []string `json:"notes" doc:"what of the isolation is not as it would be on another host"`
	Warnings  []string `json:"warnings" doc:"what the repository asks for that its import for this run didn't do"`
	Limits    Limits   `json:"limits"`
	// Environment is the environment identity (A10). It claims nothing about what was read.
	Environment []Identity        `json:"environment" doc:"what each system was at the start"`
	Digests     map[string]string `json:"digests" doc:"SHA-256 of canonical inputs by name: command, environment"`

	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended" doc:"null while it runs"`
	Seconds  float64    `json:"seconds" doc:"of the program, without preparation and sealing"`
	FrozenUS int64      `json:"frozen_us" doc:"microseconds that writers stood still for the seal"`
	Kept     bool       `json:"kept" doc:"the forks were kept"`
	Host     Process    `json:"host" doc:"the process that served it"`
}

// Command is what was started. Secrets are never in it.
type Command struct {
	Args []string `json:"args"`
	Dir  string   `json:"workdir" doc:"where it started"`
	User string   `json:"user" doc:"uid:gid"`
	Env  []string `json:"env" doc:"what --env gave, K=V"`
}

// System is one fork of the run.
type System struct {
	Name         string  `json:"name"`
	Path         string  `json:"path" doc:"where the program saw it"`
	Fork         string  `json:"fork"`
	Checkpoint   string  `json:"checkpoint" doc:"what it was at the start"`
	Tree         string  `json:"tree" doc:"git tree id of the checkpoint"`
	Commit       *string `json:"source_commit" doc:"the commit it was imported from; null without one"`
	Sealed       *string `json:"sealed" doc:"what it was sealed into; null when it was not"`
	SealedTree   *string `json:"sealed_tree" doc:"git tree id of the sealed checkpoint"`
	ChangedFiles int     `json:"changed_files" doc:"files changed by the run, .git not counted"`
	ReadErrors   int     `json:"read_errors" doc:"files that could not be read, since their contents are missing or damaged: programs got EIO; 0 where another process serves the fork"`
}

// Identity is the environment identity of one system at the start (A10).
type Identity struct {
	Name       string  `json:"name"`
	Checkpoint string  `json:"checkpoint"`
	Tree       string  `json:"tree"`
	Commit     *string `json:"source_commit"`
	// WorkspaceCommit is set where the workspace's history was rewritten.
	WorkspaceCommit *string `json:"workspace_commit" doc:"HEAD of the workspace where it differs; else null"`
}

// Limits are 0 where there is none.
type Limits struct {
	DeadlineSeconds int64   `json:"deadline_seconds"`
	Memory          int64   `json:"memory" doc:"bytes"`
	CPUs            float64 `json:"cpus"`
	PIDs            int64   `json:"pids"`
	Network         string  `json:"network" doc:"host or none"`
}

// Error is the inert form of a failure (C4).
type Error struct {
	Code    string `json:"code"`
	Rule    string `json:"rule"`
	Summary string `json:"summary"`
}

// Process names a process across reboots and reuse of its number.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start" doc:"clock ticks after boot"`
	Boot  string `json:"boot" doc:"the kernel's boot id"`
}

// Digest is the SHA-256 of v's canonical JSON (RFC 8785), in hex.
func Digest(v any) (string, error) {
	data, err := json.Marshal(v)
	if err == nil {
		data, err = jcs.Transform(data)
	}
	if err != nil {
		return "", fmt.Errorf("canonical JSON: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
