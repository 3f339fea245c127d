package dirimport

import "fmt"

// HoldsError: the tree has something in it that must not be imported: the store, a mounted fork, /proc.
type HoldsError struct {
	Path string // where
	What string
}

func (e *HoldsError) Error() string {
	return fmt.Sprintf("refused: %s is %s; exclude it or import another directory", e.Path, e.What)
}

// ChangedError: a file was written to while it was read.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was written to while it was read; try again when it is at rest", e.Path)
}

// RequestError: options that make no sense.
type RequestError struct{ Why string }

func (e *RequestError) Error() string { return e.Why }
