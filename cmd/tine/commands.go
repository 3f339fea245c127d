package main

import "github.com/spf13/cobra"

// commands are the children of the root, in the order of the help's groups.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.versionCommand(),
		a.docsCommand(),
	}
}
