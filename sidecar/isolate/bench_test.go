package isolate

import (
	"context"
	"testing"
)

// BenchmarkRun is the cost of a view and its removal around a program that does nothing.
func BenchmarkRun(b *testing.B) {
	needRoot(b)
	spec := baseSpec(b, "")
	spec.Args = []string{"/bin/true"}
	for b.Loop() {
		p, err := Start(context.Background(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
