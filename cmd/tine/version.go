package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

// version is the release; the linker may set it.
var version = "0.1.0-dev"

type versionDocument struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision" doc:"the commit it was built from, empty when unknown"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Control  int    `json:"control" doc:"version of the protocol between tine's processes"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show what this tine is", GroupID: "host",
		Example: "  tine version --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			doc := versionDocument{Schema: "tine.version/v1", Version: version, Go: runtime.Version(),
				Platform: runtime.GOOS + "/" + runtime.GOARCH, Control: sidecar.ControlVersion}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						doc.Revision = s.Value
					}
				}
			}
			return a.printDocument(doc, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "tine %s (%s, %s)\n", doc.Version, doc.Go, doc.Platform)
				return err
			})
		},
	}
}
