package livepage

import (
	"fmt"
	"html/template"
	"strings"
)

// Charts are drawn in these units and stretched to the width there is.
const (
	chartWidth  = 300 // a unit a sample
	chartHeight = 60
)

// series is a line of a chart.
type series struct {
	Name   string
	Values []float64 // oldest first
}

// chart draws lines over the last five minutes, newest at the right edge, all on one
// scale from 0, and says their last and highest values in words.
func chart(title string, format func(float64) string, lines ...series) template.HTML {
	highest := 0.0
	for _, line := range lines {
		for _, v := range line.Values {
			highest = max(highest, v)
		}
	}
	var b strings.Builder
	words := title
	for _, line := range lines {
		now := 0.0
		if n := len(line.Values); n > 0 {
			now = line.Values[n-1]
		}
		words += fmt.Sprintf("; %s now %s", line.Name, format(now))
	}
	words += "; highest " + format(highest)
	fmt.Fprintf(&b, `<figure class="chart"><figcaption>%s <b>%s</b></figcaption>`, template.HTMLEscapeString(title), legend(lines, format))
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(words))
	for i, line := range lines {
		fmt.Fprintf(&b, `<polyline class="line%d" points="%s"/>`, i, points(line.Values, highest))
	}
	fmt.Fprintf(&b, `</svg><small>highest %s in 5 minutes</small></figure>`, template.HTMLEscapeString(format(highest)))
	return template.HTML(b.String())
}

// legend names the lines with their last values.
func legend(lines []series, format func(float64) string) string {
	var b strings.Builder
	for i, line := range lines {
		if n := len(line.Values); n > 0 {
			fmt.Fprintf(&b, `<span class="line%d">%s %s</span> `, i, template.HTMLEscapeString(line.Name), template.HTMLEscapeString(format(line.Values[n-1])))
		}
	}
	return b.String()
}

// points are the corners of a line.
func points(values []float64, highest float64) string {
	if highest == 0 {
		highest = 1
	}
	corners := make([]string, len(values))
	for i, v := range values {
		x := chartWidth - len(values) + i + 1
		corners[i] = fmt.Sprintf("%d,%.1f", x, chartHeight-1-v/highest*(chartHeight-3))
	}
	return strings.Join(corners, " ")
}

// bar is a part of a stacked bar.
type bar struct {
	Name  string
	Class string
	Bytes int64
}

// barPart is one in its place, in per mille of the whole bar.
type barPart struct {
	bar
	X, Width float64
}

// stack lays out parts of a whole; what exceeds it is cut off at its end.
func stack(whole int64, parts ...bar) []barPart {
	var placed []barPart
	at := 0.0
	for _, p := range parts {
		width := 1000 * float64(p.Bytes) / float64(max(1, whole))
		width = min(width, 1000-at)
		placed = append(placed, barPart{p, at, width})
		at += width
	}
	return placed
}
