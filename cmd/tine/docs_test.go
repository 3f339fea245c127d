package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentsAreDescribed: each document begins with its schema, and each schema is there once.
func TestDocumentsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range documents {
		if seen[d.schema] {
			t.Errorf("%s is described twice", d.schema)
		}
		seen[d.schema] = true
		f := reflect.TypeOf(d.value).Field(0)
		if f.Tag.Get("json") != "schema" {
			t.Errorf("%s: the first field is %s", d.schema, f.Name)
		}
	}
	for _, d := range describeDocuments() {
		var names []string
		for _, f := range d.Fields {
			if f.Name == "" || f.Type == "" || slices.Contains(names, f.Name) {
				t.Errorf("%s: field %+v", d.Schema, f)
			}
			names = append(names, f.Name)
		}
	}
}

// TestEveryCommandHasHelp: a sentence and, where it does something, an example.
func TestEveryCommandHasHelp(t *testing.T) {
	a := &app{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Short[len(cmd.Short)-1] == '.' {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
		if !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(a.rootCommand())
}

// TestCommandsOfTheContract: the names are fixed, users' scripts have them.
func TestCommandsOfTheContract(t *testing.T) {
	root := (&app{}).rootCommand()
	for _, path := range [][]string{
		{"import", "git"}, {"import", "dir"}, {"checkpoint", "ls"}, {"checkpoint", "show"}, {"checkpoint", "tree"}, {"checkpoint", "diff"},
		{"checkpoint", "cat"}, {"checkpoint", "export"}, {"checkpoint", "rm"}, {"tag"}, {"untag"}, {"fork", "create"}, {"fork", "ls"}, {"fork", "show"},
		{"fork", "diff"}, {"fork", "patch"}, {"fork", "rm"}, {"fork", "exec"}, {"mount"}, {"run"}, {"runs", "ls"}, {"runs", "show"}, {"runs", "rm"},
		{"ps"}, {"ps", "ls"}, {"seal"}, {"fsck"}, {"inspect"}, {"doctor"}, {"version"}, {"docs", "man"}, {"docs", "json"},
	} {
		cmd, _, err := root.Find(path)
		if err != nil || cmd == root || cmd.Name() != path[len(path)-1] && !slices.Contains(cmd.Aliases, path[len(path)-1]) {
			t.Errorf("tine %v: found %v, %v", path, cmd.CommandPath(), err)
		}
	}
}
