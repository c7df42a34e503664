package livepage

import (
	"fmt"
	"html/template"
	"math"
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

// A scale places a value between the bottom, 0, and the top of a chart, 1, which is where
// the highest is.
type scale func(v, highest float64) float64

// fromZero is the scale of rates and amounts.
func fromZero(v, highest float64) float64 { return v / highest }

// byRatio is the scale of latencies, which differ by factors, so that one slow moment
// does not press all others to the ground: from a microsecond on, each factor is as high.
func byRatio(v, highest float64) float64 {
	const lowest = 1e-6
	if highest <= lowest {
		return 0
	}
	return max(0, math.Log(max(v, lowest)/lowest)/math.Log(highest/lowest))
}

// chart draws lines over the last five minutes, newest at the right edge, all on one
// scale, and says their last and highest values in words.
func chart(title string, format func(float64) string, scale scale, lines ...series) template.HTML {
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
		fmt.Fprintf(&b, `<polyline class="line%d" points="%s"/>`, i, points(line.Values, highest, scale))
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
func points(values []float64, highest float64, scale scale) string {
	if highest == 0 {
		highest = 1
	}
	corners := make([]string, len(values))
	for i, v := range values {
		x := chartWidth - len(values) + i + 1
		corners[i] = fmt.Sprintf("%d,%.1f", x, chartHeight-1-scale(v, highest)*(chartHeight-3))
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
