package main

import "github.com/spf13/cobra"

// commands are the children of the root.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.importCommand(), a.checkpointCommand(), a.tagCommand(), a.untagCommand(),
		a.forkCommand(), a.mountCommand(), a.sealCommand(),
		a.runCommand(), a.runsCommand(),
		a.fsckCommand(), a.inspectCommand(), a.doctorCommand(), a.versionCommand(), a.docsCommand(),
	}
}
