package sidecar

// Step is how far long work has come. Total is 0 while it isn't known.
type Step struct {
	Stage       string
	Done, Total int64
	Bytes       bool // Done and Total are bytes, else things
}

// Progress hears of steps, from any goroutine. A nil Progress hears nothing.
type Progress func(Step)

// files adapts p to work that counts files.
func (p Progress) files() func(stage string, done, total int64) {
	if p == nil {
		return nil
	}
	return func(stage string, done, total int64) { p(Step{Stage: stage, Done: done, Total: total}) }
}
