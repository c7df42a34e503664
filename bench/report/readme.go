package main

import (
	"bytes"
	"fmt"
	"strings"
)

// The table of the README is between these lines.
const (
	tableBegin = "<!-- performance: begin -->\n"
	tableEnd   = "<!-- performance: end -->"
)

// replaceTable replaces the table of the README. A README without the marks is not changed.
func replaceTable(readme []byte, table string) []byte {
	before, rest, ok := bytes.Cut(readme, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ended {
		return readme
	}
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, tableBegin, table, tableEnd, after)
}

// summary returns the table of the README: real records by id.
func (s set) summary() string {
	var b strings.Builder
	b.WriteString("| callers | batch | docstore (s2) | p50; p99 | memcached | Redis (rueidis) |\n|---|---|---|---|---|---|\n")
	for _, load := range [][2]int{{1, 1}, {1, 50}, {64, 1}, {64, 50}} {
		phase := fmt.Sprintf("%d callers, batches of %d, uniform", load[0], load[1])
		text := func(contestant, figure string, format func(float64) string) string {
			return s.text("debian", contestant, phase, figure, format)
		}
		fmt.Fprintf(&b, "| %d | %d | %s | %s; %s | %s | %s |\n", load[0], load[1], text("docstore", "documents/s", whole), text("docstore", "p50 ns", duration),
			text("docstore", "p99 ns", duration), text("memcached", "documents/s", whole), text("rueidis", "documents/s", whole))
	}
	return b.String()
}

// whole formats a number with three significant digits and commas between thousands.
func whole(f float64) string {
	unit := 1.0
	for f/unit >= 1000 {
		unit *= 10
	}
	n := fmt.Sprintf("%.0f", float64(int(f/unit+0.5))*unit)
	for i := len(n) - 3; i > 0; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}
