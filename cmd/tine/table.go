package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table prints aligned columns. A header that begins with ">" is a column of numbers, aligned at the right.
type table struct {
	header []string
	rows   [][]string
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer, colour bool) error {
	width := make([]int, len(t.header))
	right := make([]bool, len(t.header))
	head := make([]string, len(t.header))
	for i, h := range t.header {
		head[i] = strings.TrimPrefix(h, ">")
		right[i] = head[i] != h
		width[i] = utf8.RuneCountInString(head[i])
	}
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(cells []string, sgr string) {
		var l strings.Builder
		for i, cell := range cells {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				l.WriteString("  ")
			}
			if right[i] {
				l.WriteString(pad + cell)
			} else {
				l.WriteString(cell + pad)
			}
		}
		b.WriteString(paint(colour && sgr != "", sgr, strings.TrimRight(l.String(), " ")) + "\n")
	}
	line(head, bold)
	for _, row := range t.rows {
		line(row, "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// pairs prints "name  value" lines with the names aligned; empty values are left out.
type pairs struct {
	names, values []string
}

func (p *pairs) add(name, value string) {
	if value != "" {
		p.names, p.values = append(p.names, name), append(p.values, value)
	}
}

func (p *pairs) write(w io.Writer, colour bool) error {
	width := 0
	for _, n := range p.names {
		width = max(width, utf8.RuneCountInString(n))
	}
	var b strings.Builder
	for i, n := range p.names {
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(n)+2)
		value := strings.ReplaceAll(p.values[i], "\n", "\n"+strings.Repeat(" ", width+2))
		b.WriteString(paint(colour, dim, n) + pad + value + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
