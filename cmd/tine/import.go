package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) importCommand() *cobra.Command {
	return group("import", "Make a checkpoint of a commit or a directory", "checkpoints", a.importGitCommand(), a.importDirCommand())
}

func (a *app) importGitCommand() *cobra.Command {
	var r sidecar.ImportGit
	var labels []string
	cmd := &cobra.Command{
		Use: "git REPO [REV]", Short: "Make a checkpoint of a commit",
		Long: `import git makes a checkpoint of REV (default HEAD) of the repository REPO. Only trees are read now; file contents
are read from the repository when they are first used, or all at once with --eager. The same commit with the same
options gives the same checkpoint everywhere.

The workspace gets a .git of its own that holds what REV reaches at the requested depth and nothing else of REPO.

Into a pipe or a file it prints the JSON document without being asked:  C=$(tine import git . | jq -r .checkpoint)`,
		Example: `  tine import git . --name base
  tine import git ~/src/linux v6.12 --depth 50
  tine import git . --dirty --exclude '*.key'`,
		Args: between(1, "REPO", "REV"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Repo = args[0]
			if len(args) > 1 {
				r.Rev = args[1]
			}
			if r.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			return a.importing(func(h *sidecar.Host, progress sidecar.Progress) (*sidecar.Imported, error) {
				r.Progress = progress
				return h.ImportGit(cmd.Context(), r)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "`NAME` the checkpoint")
	f.BoolVar(&r.Force, "force", false, "take the name away from what has it")
	f.IntVar(&r.Depth, "depth", 1, "`N` commits of history in the workspace")
	f.BoolVar(&r.FullHistory, "full-history", false, "all of REV's history in the workspace")
	f.StringArrayVar(&r.Exclude, "exclude", nil, "leave out what matches `GLOB`, as in .gitignore; history is rewritten (repeatable)")
	f.StringVar(&r.Subpath, "subpath", "", "take `DIR` only")
	f.BoolVar(&r.Eager, "eager", false, "copy all contents now, so that the repository may go away")
	f.BoolVar(&r.Dirty, "dirty", false, "the work tree as it is: tracked and untracked, not ignored")
	f.StringArrayVar(&labels, "label", nil, "label the checkpoint, `K=V` (repeatable)")
	cmd.MarkFlagsMutuallyExclusive("depth", "full-history")
	cmd.MarkFlagDirname("subpath")
	return cmd
}

func (a *app) importDirCommand() *cobra.Command {
	var r sidecar.ImportDir
	var labels []string
	cmd := &cobra.Command{
		Use: "dir DIR", Short: "Make a checkpoint of a directory",
		Long: `import dir makes a checkpoint of DIR as it is: bytes, modes, owners, times to the nanosecond, hard links, extended
attributes, ACLs, holes, FIFOs and device nodes (which no fork can open).`,
		Example: "  tine import dir /srv/rootfs --name debian --exclude /var/cache",
		Args:    exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Dir = args[0]
			if r.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			return a.importing(func(h *sidecar.Host, progress sidecar.Progress) (*sidecar.Imported, error) {
				r.Progress = progress
				return h.ImportDir(cmd.Context(), r)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "`NAME` the checkpoint")
	f.BoolVar(&r.Force, "force", false, "take the name away from what has it")
	f.StringArrayVar(&r.Exclude, "exclude", nil, "leave out what matches `GLOB`, as in .gitignore (repeatable)")
	f.StringArrayVar(&labels, "label", nil, "label the checkpoint, `K=V` (repeatable)")
	return cmd
}

func (a *app) importing(do func(*sidecar.Host, sidecar.Progress) (*sidecar.Imported, error)) (err error) {
	h, err := a.host(true)
	if err != nil {
		return err
	}
	defer closing(h, &err)
	report, done := a.progress()
	doc, err := do(h, report)
	done()
	if err != nil {
		return err
	}
	for _, w := range doc.Warnings {
		a.warn("%s", w)
	}
	return a.printResult(doc, func(w io.Writer) error {
		named := ""
		if doc.Name != "" {
			named = "  as " + doc.Name
		}
		_, err := fmt.Fprintf(w, "%s%s  %s, %s in %s\n", paint(a.outColour, bold, short(doc.Checkpoint)), named,
			count(doc.Files, "file"), size(doc.Bytes), seconds(doc.Seconds))
		return err
	})
}
