package livepage

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Charts are drawn in these units and scaled to the available width.
const (
	chartWidth  = 300 // one unit per sample
	chartHeight = 60
)

// series is a line of a chart.
type series struct {
	Name   string
	Values []float64 // oldest first
}

// A scale maps a value to a height between 0 and 1; the highest value has height 1.
type scale func(v, highest float64) float64

// fromZero is the linear scale, for rates and amounts.
func fromZero(v, highest float64) float64 { return v / highest }

// byRatio is a logarithmic scale from a microsecond on, for latencies: a single slow moment
// does not flatten all others.
func byRatio(v, highest float64) float64 {
	const lowest = 1e-6
	if highest <= lowest {
		return 0
	}
	return max(0, math.Log(max(v, lowest)/lowest)/math.Log(highest/lowest))
}

// chart draws lines over the last five minutes on a common scale, newest on the right, and
// prints their latest and highest values. Lines without a value other than 0 have no chart.
func chart(title string, format func(float64) string, scale scale, lines ...series) template.HTML {
	highest := 0.0
	for _, line := range lines {
		for _, v := range line.Values {
			highest = max(highest, v)
		}
	}
	if highest == 0 {
		return ""
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

// legend lists the lines with their latest values.
func legend(lines []series, format func(float64) string) string {
	var b strings.Builder
	for i, line := range lines {
		if n := len(line.Values); n > 0 {
			fmt.Fprintf(&b, `<span class="line%d">%s %s</span> `, i, template.HTMLEscapeString(line.Name), template.HTMLEscapeString(format(line.Values[n-1])))
		}
	}
	return b.String()
}

// points returns the points of a line.
func points(values []float64, highest float64, scale scale) string {
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

// barPart is a positioned bar, in per mille of the whole.
type barPart struct {
	bar
	X, Width float64
}

// stack lays out parts of a whole; the excess is cut off.
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
