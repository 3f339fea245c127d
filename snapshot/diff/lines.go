package diff

import (
	"bytes"
	"slices"
)

// edit is a run of lines: n lines of both, or del lines of the old text replaced by add lines of the new one.
type edit struct{ same, del, add int }

// maxCost bounds the number of differing lines that are searched for the shortest script: memory is 4·maxCost² bytes. Texts
// that differ more are cut at lines which are unique in both, and what remains is replaced as a whole: still a right patch,
// only not the shortest one.
const maxCost = 1500

// splitLines cuts after each line break; the last line may lack one.
func splitLines(text []byte) [][]byte {
	lines := make([][]byte, 0, bytes.Count(text, []byte{'\n'})+1)
	for len(text) > 0 {
		n := bytes.IndexByte(text, '\n') + 1
		if n == 0 {
			n = len(text)
		}
		lines = append(lines, text[:n])
		text = text[n:]
	}
	return lines
}

// lineDiff compares two texts line by line.
func lineDiff(a, b [][]byte) []edit {
	ids := map[string]int32{}
	number := func(lines [][]byte) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			id, ok := ids[string(l)]
			if !ok {
				id = int32(len(ids))
				ids[string(l)] = id
			}
			out[i] = id
		}
		return out
	}
	s := &script{}
	s.diff(number(a), number(b), true)
	return s.edits
}

// script collects edits, joining neighbours.
type script struct{ edits []edit }

func (s *script) same(n int) {
	if n == 0 {
		return
	}
	if k := len(s.edits); k > 0 && s.edits[k-1].same > 0 {
		s.edits[k-1].same += n
		return
	}
	s.edits = append(s.edits, edit{same: n})
}

func (s *script) replace(del, add int) {
	if del == 0 && add == 0 {
		return
	}
	if k := len(s.edits); k > 0 && s.edits[k-1].same == 0 {
		s.edits[k-1].del += del
		s.edits[k-1].add += add
		return
	}
	s.edits = append(s.edits, edit{del: del, add: add})
}

func (s *script) diff(a, b []int32, split bool) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	s.same(head)
	a, b = a[head:], b[head:]
	tail := 0
	for tail < len(a) && tail < len(b) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	a, b = a[:len(a)-tail], b[:len(b)-tail]
	switch {
	case len(a) == 0 || len(b) == 0:
		s.replace(len(a), len(b))
	case s.shortest(a, b):
	case split:
		s.split(a, b)
	default:
		s.replace(len(a), len(b))
	}
	s.same(tail)
}

// shortest is Myers' greedy algorithm; false if the texts differ in more than maxCost lines.
func (s *script) shortest(a, b []int32) bool {
	n, m := len(a), len(b)
	limit := min(n+m, maxCost)
	v := make([]int32, 2*limit+3)
	mid := limit + 1
	var trace [][]int32
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(v[mid-d:mid+d+1]))
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || k != d && v[mid+k-1] < v[mid+k+1] {
				x = int(v[mid+k+1])
			} else {
				x = int(v[mid+k-1]) + 1
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			v[mid+k] = int32(x)
			if x >= n && y >= m {
				s.walk(trace, n, m, d)
				return true
			}
		}
	}
	return false
}

// walk goes back through the furthest points of each step and emits the edits in order. trace[d] are those before step d, for
// diagonals -d..d.
func (s *script) walk(trace [][]int32, x, y, d int) {
	var back []edit
	for ; d > 0; d-- {
		v, k := trace[d], x-y
		at := func(k int) int { return int(v[k+d]) }
		prev := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			prev = k + 1
		}
		px := at(prev)
		step, sx := edit{del: 1}, px+1
		if prev > k {
			step, sx = edit{add: 1}, px
		}
		back = append(back, edit{same: x - sx}, step)
		x, y = px, px-prev
	}
	back = append(back, edit{same: x})
	for _, e := range slices.Backward(back) {
		s.same(e.same)
		s.replace(e.del, e.add)
	}
}

// split cuts both texts at lines that are unique in each and in the same order (patience), and compares the pieces.
func (s *script) split(a, b []int32) {
	type place struct{ count, at int }
	in := func(lines []int32) map[int32]place {
		m := make(map[int32]place, len(lines))
		for i, l := range lines {
			p := m[l]
			m[l] = place{p.count + 1, i}
		}
		return m
	}
	inA, inB := in(a), in(b)
	var pairs [][2]int
	for i, l := range a {
		if q := inB[l]; inA[l].count == 1 && q.count == 1 {
			pairs = append(pairs, [2]int{i, q.at})
		}
	}
	pairs = longestIncreasing(pairs)
	i, j := 0, 0
	for _, p := range pairs {
		if p[0] < i || p[1] < j {
			continue
		}
		s.diff(a[i:p[0]], b[j:p[1]], false)
		s.same(1)
		i, j = p[0]+1, p[1]+1
	}
	s.diff(a[i:], b[j:], false)
}

// longestIncreasing keeps the most pairs whose second members ascend; the first ones do already.
func longestIncreasing(pairs [][2]int) [][2]int {
	var tops []int // tops[n]: index of the pair that ends the best sequence of n+1 pairs
	prev := make([]int, len(pairs))
	for i, p := range pairs {
		n, _ := slices.BinarySearchFunc(tops, p[1], func(t, want int) int { return pairs[t][1] - want })
		prev[i] = -1
		if n > 0 {
			prev[i] = tops[n-1]
		}
		if n == len(tops) {
			tops = append(tops, i)
		} else {
			tops[n] = i
		}
	}
	if len(tops) == 0 {
		return nil
	}
	var out [][2]int
	for i := tops[len(tops)-1]; i >= 0; i = prev[i] {
		out = append(out, pairs[i])
	}
	slices.Reverse(out)
	return out
}
