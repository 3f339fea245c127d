package registry

import "testing"

func BenchmarkCreate(b *testing.B) {
	r := Open(nil, b.TempDir()+"/forks.log")
	for b.Loop() {
		if _, err := r.Create(Fork{Base: "c"}); err != nil {
			b.Fatal(err)
		}
	}
}
