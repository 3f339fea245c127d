package gitimport

import (
	"fmt"
	"slices"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// maxAttributes (1 MiB) is more than any .gitattributes that a person wrote.
const maxAttributes = 1 << 20

// warnAttributes warns of attributes that would have git change files while checking them out: an import takes blobs'
// bytes as they are. It reads the .gitattributes of the commit and nothing else.
func (im *importer) warnAttributes(index []tracked) {
	var asks []string
	for i := range index {
		f := &index[i]
		if f.mode == modeSymlink || f.mode == modeGitlink || f.path != ".gitattributes" && !strings.HasSuffix(f.path, "/.gitattributes") {
			continue
		}
		if b := &im.blobs[im.blobAt[f.blob]]; b.size > maxAttributes {
			continue
		}
		typ, data, err := im.db.Read(f.blob)
		if err != nil || typ != objects.Blob {
			continue // whoever reads the file is told; a warning isn't worth failing for
		}
		for _, what := range conversions(string(data)) {
			if !slices.Contains(asks, what) {
				asks = append(asks, what)
			}
		}
	}
	if len(asks) > 0 {
		slices.Sort(asks)
		im.warnings = append(im.warnings, fmt.Sprintf("attributes ask git to convert files on checkout (%s); files are imported as they are stored", strings.Join(asks, ", ")))
	}
}

// conversions are the attributes in a .gitattributes file that change bytes between repository and work tree on Linux.
func conversions(text string) []string {
	var list []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if line[0] == '"' { // a quoted pattern may have spaces
			if end := strings.LastIndexByte(line, '"'); end > 0 {
				fields = append([]string{"pattern"}, strings.Fields(line[end+1:])...)
			}
		}
		for _, a := range fields[1:] {
			name, value, _ := strings.Cut(a, "=")
			switch {
			case a == "eol=crlf", a == "ident", name == "filter" && value != "", name == "working-tree-encoding" && value != "":
				list = append(list, a)
			}
		}
	}
	return list
}
