package overlay

import (
	"tine/snapshot/content"
	"tine/snapshot/image"
)

// treeFiles makes image.Files of a memTree.
type treeFiles struct{ *memTree }

func (f treeFiles) OpenFile(n image.Node) (content.Reader, error) { return f.memTree.Open(n.Content) }
