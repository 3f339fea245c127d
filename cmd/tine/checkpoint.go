package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) checkpointCommand() *cobra.Command {
	cmd := group("checkpoint", "List, look into, compare and export checkpoints", "checkpoints",
		a.checkpointLs(), a.checkpointShow(), a.checkpointTree(), a.checkpointDiff(), a.checkpointCat(), a.checkpointExport(), a.checkpointRm())
	cmd.Aliases = []string{"checkpoints", "cp"}
	return cmd
}

func (a *app) checkpointLs() *cobra.Command {
	var filter []string
	cmd := &cobra.Command{
		Use: "ls", Short: "List checkpoints, the newest first", Aliases: []string{"list"},
		Example: "  tine checkpoint ls --label suite=nightly",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			all, listErr := h.Checkpoints()
			list := []*sidecar.Checkpoint{}
			for _, c := range all {
				if selects(filter, c.Labels) {
					list = append(list, c)
				}
			}
			err = a.printDocument(list, func(w io.Writer) error {
				now := time.Now()
				t := newTable("CHECKPOINT", "NAMES", ">FILES", ">SIZE", "FROM", "MADE")
				for _, c := range list {
					made := "-"
					if c.Created != nil {
						made = ago(*c.Created, now)
					}
					t.row(short(c.Checkpoint), orDash(strings.Join(c.Names, " ")), grouped(c.Files), size(c.Bytes), origin(c), made)
				}
				return t.write(w, a.outColour)
			})
			if err == nil {
				err = listErr
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&filter, "label", nil, "only those with the label `K=V` or K (repeatable)")
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// origin says where a checkpoint first came from, shortly.
func origin(c *sidecar.Checkpoint) string {
	if c.Commit != nil {
		from := "commit " + short(*c.Commit)
		if len(c.Provenance) > 0 && c.Provenance[0].Detail["dirty"] == "true" {
			from = "work tree at " + short(*c.Commit)
		}
		return from
	}
	if c.Parent != nil {
		return "sealed over " + short(*c.Parent)
	}
	for _, p := range c.Provenance {
		return p.Kind + " " + shown(p.Source)
	}
	return "-"
}

func (a *app) checkpointShow() *cobra.Command {
	return &cobra.Command{
		Use: "show CHECKPOINT", Short: "Show what a checkpoint is and where it came from",
		Example:           "  tine checkpoint show base",
		Args:              exactly("CHECKPOINT"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			c, err := h.Checkpoint(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printDocument(c, func(w io.Writer) error { return a.showCheckpoint(w, c) })
		},
	}
}

func (a *app) showCheckpoint(w io.Writer, c *sidecar.Checkpoint) error {
	var p pairs
	p.add("checkpoint", c.Checkpoint)
	p.add("names", strings.Join(c.Names, ", "))
	p.add("tree", c.Tree)
	if c.Commit != nil {
		p.add("commit", *c.Commit)
	}
	if c.Parent != nil {
		p.add("sealed over", *c.Parent)
	}
	p.add("holds", count(c.Files, "file")+", "+size(c.Bytes))
	p.add("labels", labelList(c.Labels))
	// What came in the same way many times, as by runs on one commit, is one line.
	times, last := map[string]int{}, map[string]time.Time{}
	var ways []string
	for _, from := range c.Provenance {
		line := from.Kind + " " + shown(from.Source)
		var keys []string
		for k := range from.Detail {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			line += "  " + k + "=" + shown(from.Detail[k])
		}
		if times[line]++; times[line] == 1 {
			ways = append(ways, line)
		}
		last[line] = from.At
	}
	for i, line := range ways {
		name := ""
		if i == 0 {
			name = "from"
		}
		when := last[line].Format(time.RFC3339)
		if n := times[line]; n > 1 {
			when += fmt.Sprintf(" (%d times)", n)
		}
		p.add(name, when+"  "+line)
	}
	return p.write(w, a.outColour)
}

func labelList(labels map[string]string) string {
	var list []string
	for k, v := range labels {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return strings.Join(list, " ")
}

func (a *app) checkpointTree() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "tree CHECKPOINT [PATH]", Short: "List a checkpoint's files",
		Example:           "  tine checkpoint tree base src",
		Args:              between(1, "CHECKPOINT", "PATH"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			c, err := h.Resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path := ""
			if len(args) > 1 {
				path = args[1]
			}
			entries := []sidecar.TreeEntry{}
			t := newTable("MODE", ">OWNER", ">SIZE", "PATH")
			err = h.Walk(cmd.Context(), c.ID, path, all, func(e sidecar.TreeEntry) error {
				if a.json {
					entries = append(entries, e)
				} else {
					name := shown(e.Path)
					if e.Kind == "directory" {
						name += "/"
					}
					if e.Gitlink != "" {
						name += "  @ " + short(e.Gitlink)
					}
					t.row(e.Mode, fmt.Sprintf("%d:%d", e.UID, e.GID), size(e.Size), name)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.printDocument(entries, func(w io.Writer) error { return t.write(w, a.outColour) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "the workspace's .git, too")
	return cmd
}

func (a *app) checkpointDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use: "diff A B", Short: "Compare two checkpoints",
		Example: `  tine checkpoint diff base try1
  tine checkpoint diff base try1 --patch | git apply`,
		Args:              exactly("A", "B"),
		ValidArgsFunction: a.completeArgs(2, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0]+args[1], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			return a.printDiff(cmd.Context(), &f,
				func(r sidecar.DiffRequest) ([]sidecar.Change, error) {
					return h.CheckpointDiff(cmd.Context(), args[0], args[1], r)
				},
				func(r sidecar.RenderRequest, w io.Writer) error {
					return h.RenderCheckpoints(cmd.Context(), args[0], args[1], r, w)
				})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.patch, "patch", false, "a git-format patch that 'git apply' takes")
	cmd.MarkFlagsMutuallyExclusive("stat", "name-status", "patch")
	return cmd
}

func (a *app) checkpointCat() *cobra.Command {
	return &cobra.Command{
		Use: "cat CHECKPOINT PATH", Short: "Print a file of a checkpoint",
		Example:           "  tine checkpoint cat base README.md",
		Args:              exactly("CHECKPOINT", "PATH"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			a.printed = true // from here on standard output is the file's
			return h.Cat(cmd.Context(), args[0], args[1], a.out)
		},
	}
}

// exportDocument is the answer to an export into a directory.
type exportDocument struct {
	Schema  string  `json:"schema"`
	Path    string  `json:"path"`
	Seconds float64 `json:"seconds"`
}

// export writes to a directory, or, for "-", a tar stream to standard output. Like cp and tar it says nothing when all
// is well.
func (a *app) export(to string, devices bool, do func(sidecar.ExportRequest, io.Writer) error) error {
	if to == "-" {
		if a.outTerminal {
			return &usageError{"a tar stream doesn't go to a terminal; redirect it"}
		}
		a.printed = true // standard output is the stream's
		return do(sidecar.ExportRequest{}, a.out)
	}
	dir, err := filepath.Abs(to) // the process that does it may stand elsewhere
	if err != nil {
		return err
	}
	start := time.Now()
	if err := do(sidecar.ExportRequest{Dir: dir, Devices: devices}, nil); err != nil || !a.json {
		return err
	}
	return a.printJSON(exportDocument{"tine.export/v1", dir, time.Since(start).Seconds()})
}

func (a *app) checkpointExport() *cobra.Command {
	var devices bool
	cmd := &cobra.Command{
		Use: "export CHECKPOINT DIR|-", Short: "Write a checkpoint's files to a new directory, or as a tar stream",
		Long: `export writes the files of a checkpoint with modes, owners, times, links and extended attributes, into a directory
that is new or empty, or as a tar stream to standard output.`,
		Example: `  tine checkpoint export try1 /srv/result
  tine checkpoint export try1 - | tar -tv`,
		Args:              exactly("CHECKPOINT", "DIR"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			return a.export(args[1], devices, func(r sidecar.ExportRequest, out io.Writer) error {
				return h.ExportCheckpoint(cmd.Context(), args[0], r, out)
			})
		},
	}
	cmd.Flags().BoolVar(&devices, "devices", false, "make device nodes, which are left out otherwise")
	return cmd
}

// removedDocument is the answer to what removes something.
type removedDocument struct {
	Schema  string   `json:"schema"`
	Removed []string `json:"removed" doc:"ids or names"`
}

// removeEach removes all that refs name, also after a failure, as rm does, and then tells of every failure.
func (a *app) removeEach(refs []string, remove func(string) (string, error)) error {
	var removed []string
	var failures []error
	for _, ref := range refs {
		if id, err := remove(ref); err != nil {
			failures = append(failures, err)
		} else {
			removed = append(removed, id)
		}
	}
	if a.json && removed != nil {
		if err := a.printJSON(removedDocument{"tine.removed/v1", removed}); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}

func (a *app) checkpointRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "Remove names; what no name, fork or run needs goes by gc",
		Example:           "  tine checkpoint rm try1",
		Args:              atLeastOne("NAME"),
		ValidArgsFunction: a.completeArgs(100, "checkpoint"),
		RunE:              a.untag,
	}
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{"missing argument: " + name}
		}
		return nil
	}
}

func (a *app) untag(_ *cobra.Command, names []string) (err error) {
	h, err := a.host(false)
	if err != nil {
		return err
	}
	defer closing(h, &err)
	return a.removeEach(names, func(name string) (string, error) { return name, h.Untag(name) })
}

// tagDocument is the answer to tag.
type tagDocument struct {
	Schema     string `json:"schema"`
	Checkpoint string `json:"checkpoint"`
	Name       string `json:"name"`
}

func (a *app) tagCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "tag CHECKPOINT NAME", Short: "Name a checkpoint, which also keeps it", GroupID: "checkpoints",
		Example:           "  tine tag 3fa9c1d2 base",
		Args:              exactly("CHECKPOINT", "NAME"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			id, err := h.Tag(cmd.Context(), args[0], args[1], force)
			if err != nil || !a.json {
				return err
			}
			return a.printJSON(tagDocument{"tine.tag/v1", id, args[1]})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "take the name away from what has it")
	return cmd
}

func (a *app) untagCommand() *cobra.Command {
	return &cobra.Command{
		Use: "untag NAME...", Short: "Remove a checkpoint's name", GroupID: "checkpoints",
		Example:           "  tine untag base",
		Args:              atLeastOne("NAME"),
		ValidArgsFunction: a.completeArgs(100, "checkpoint"),
		RunE:              a.untag,
	}
}
