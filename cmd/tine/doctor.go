package main

import (
	"io"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what would keep tine from working here", GroupID: "host",
		Long: `doctor looks at the kernel, the privileges and the store, and changes nothing. It fails when something that tine
needs is missing.`,
		Example: "  tine doctor",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			findings := sidecar.Doctor(a.store)
			problems := false
			err := a.printDocument(findings, func(w io.Writer) error {
				t := newTable("CHECK", "", "FOUND")
				for _, f := range findings {
					t.row(f.Check, f.Level, f.Found)
					if f.Remedy != "" {
						t.row("", "", "-> "+f.Remedy)
					}
				}
				return t.write(w, a.outColour)
			})
			for _, f := range findings {
				problems = problems || f.Level == "problem"
			}
			if err == nil && problems {
				return &exitError{statusFailed}
			}
			return err
		},
	}
}
