package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"tine/sidecar"
	"tine/sidecar/record"
)

func (a *app) docsCommand() *cobra.Command {
	man := &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command",
		Example: "  tine docs man /usr/local/share/man/man1",
		Args:    exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			// A fixed date keeps the pages equal from build to build.
			date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "tine " + version, Manual: "tine", Date: &date}, args[0])
		},
	}
	schemas := &cobra.Command{
		Use: "json", Short: "Describe every JSON document that tine prints",
		Example: "  tine docs json --json | jq '.[] | select(.schema==\"tine.run/v1\")'",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			docs := describeDocuments()
			return a.printDocument(docs, func(w io.Writer) error {
				for i, d := range docs {
					if i > 0 {
						fmt.Fprintln(w)
					}
					fmt.Fprintf(w, "%s  %s\n", paint(a.outColour, bold, d.Schema), d.About)
					t := newTable("FIELD", "TYPE", "MEANING")
					for _, f := range d.Fields {
						t.row(f.Name, f.Type, f.About)
					}
					if err := t.write(w, a.outColour); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	return group("docs", "Manual pages and the JSON documents' fields", "host", man, schemas)
}

type schemaDocument struct {
	Schema string        `json:"schema" doc:"the described document's schema, not this one's"`
	About  string        `json:"about" doc:"which commands print it"`
	Fields []schemaField `json:"fields"`
}

type schemaField struct {
	Name  string `json:"name" doc:"path of the field; [] stands for each element"`
	Type  string `json:"type"`
	About string `json:"about"`
}

// documents are all that is ever printed with --json. A document's schema is in its first field.
var documents = []struct {
	schema, about string
	value         any
}{
	{"tine.error/v1", "any command that fails", errorDocument{}},
	{"tine.import/v1", "import git, import dir", sidecar.Imported{}},
	{"tine.checkpoint/v1", "checkpoint show, inspect; checkpoint ls (an array)", sidecar.Checkpoint{}},
	{"tine.entry/v1", "checkpoint tree (an array)", sidecar.TreeEntry{}},
	{"tine.change/v1", "checkpoint diff, fork diff (an array)", sidecar.Change{}},
	{"tine.export/v1", "checkpoint export, fork export into a directory", exportDocument{}},
	{"tine.tag/v1", "tag", tagDocument{}},
	{"tine.removed/v1", "untag, checkpoint rm, fork rm, runs rm", removedDocument{}},
	{"tine.fork-created/v1", "fork create; with --count an array", sidecar.CreatedFork{}},
	{"tine.fork/v1", "fork show, inspect; fork ls (an array)", sidecar.Fork{}},
	{"tine.mount/v1", "mount, once it can be used", mountDocument{}},
	{"tine.seal/v1", "seal", sidecar.SealReceipt{}},
	{"tine.run/v1", "run, fork exec, runs show, inspect; runs ls (an array)", record.Run{}},
	{"tine.fsck/v1", "fsck", sidecar.FsckReport{}},
	{"tine.finding/v1", "doctor (an array)", sidecar.Finding{}},
	{"tine.version/v1", "version", versionDocument{}},
	{"tine.schema/v1", "docs json (an array)", schemaDocument{}},
}

func describeDocuments() []schemaDocument {
	var all []schemaDocument
	for _, d := range documents {
		all = append(all, schemaDocument{d.schema, d.about, describeFields("", reflect.TypeOf(d.value))})
	}
	return all
}

func describeFields(prefix string, t reflect.Type) []schemaField {
	var fields []schemaField
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			fields = append(fields, describeFields(prefix, f.Type)...)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		ft, null := f.Type, strings.Contains(options, "omit")
		kind, inner := jsonType(&ft)
		if null {
			kind += ", may be absent"
		}
		fields = append(fields, schemaField{prefix + name, kind, f.Tag.Get("doc")})
		if inner != nil {
			sep := "."
			if ft.Kind() == reflect.Slice {
				sep = "[]."
			}
			fields = append(fields, describeFields(prefix+name+sep, inner)...)
		}
	}
	return fields
}

// jsonType names t as JSON has it and returns the struct inside, if any; *t loses its pointer.
func jsonType(t *reflect.Type) (string, reflect.Type) {
	suffix := ""
	if (*t).Kind() == reflect.Pointer {
		*t, suffix = (*t).Elem(), " or null"
	}
	if *t == reflect.TypeFor[time.Time]() {
		return "time (RFC 3339)" + suffix, nil
	}
	switch (*t).Kind() {
	case reflect.String:
		return "string" + suffix, nil
	case reflect.Bool:
		return "boolean" + suffix, nil
	case reflect.Float64:
		return "number" + suffix, nil
	case reflect.Slice:
		e := (*t).Elem()
		name, inner := jsonType(&e)
		return "array of " + name + "s" + suffix, inner
	case reflect.Map:
		return "object" + suffix, nil
	case reflect.Struct:
		return "object" + suffix, *t
	default:
		return "integer" + suffix, nil
	}
}
