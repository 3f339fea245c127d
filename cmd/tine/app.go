package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

// host opens the store. With create it is made if there is none: commands that write ask for that.
func (a *app) host(create bool) (*sidecar.Host, error) {
	if a.store == "" {
		return nil, &usageError{"no store: give --store DIR or set TINE_STORE"}
	}
	return sidecar.Open(sidecar.Config{Store: a.store, Create: create})
}

// completeCheckpoints offers names of checkpoints for a flag.
func (a *app) completeCheckpoints(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.names("checkpoint"), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// completeArgs offers names of a kind for the first n arguments.
func (a *app) completeArgs(n int, kinds ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var names []string
		for _, kind := range kinds {
			names = append(names, a.names(kind)...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// names lists what can be completed; a store that can't be read completes to nothing.
func (a *app) names(kind string) []string {
	if _, err := os.Stat(a.store); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	h, err := a.host(false)
	if err != nil {
		return nil
	}
	defer h.Close()
	return h.Names(kind)
}
