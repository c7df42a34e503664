package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"docstore/bench/internal/picture"
)

// A panel plots a figure of the results against the subset size or the load.
type panel struct {
	title  string
	log    bool
	legend bool // the other panels have the same colours
	value  func(r *result) float64
}

var panels = [][]panel{
	{
		{"p99 of hot frontends, ms", true, false, func(r *result) float64 { return float64(r.p99Hot) / 1e6 }},
		{"p99 of the others, ms", true, false, func(r *result) float64 { return float64(r.p99Rest) / 1e6 }},
	},
	{
		{"backends without a request, %", false, false, func(r *result) float64 { return 100 * r.idle }},
		{"requests of the busiest backend / mean", false, true, func(r *result) float64 { return r.most }},
	},
}

// palette has a colour for each policy.
var palette = []color.Color{
	color.NRGBA{0xc0, 0x20, 0x20, 0xff}, color.NRGBA{0x1f, 0x77, 0xb4, 0xff}, color.NRGBA{0x2c, 0xa0, 0x2c, 0xff},
	color.NRGBA{0xff, 0x7f, 0x0e, 0xff}, color.NRGBA{0x94, 0x67, 0xbd, 0xff}, color.NRGBA{0x8c, 0x56, 0x4b, 0xff},
	color.NRGBA{0xe3, 0x77, 0xc2, 0xff}, color.NRGBA{0x7f, 0x7f, 0x7f, 0xff}, color.NRGBA{0xbc, 0xbd, 0x22, 0xff},
	color.NRGBA{0x17, 0xbe, 0xcf, 0xff},
}

// drawPicture plots figures against the subset size or the load if one of them varies,
// otherwise the distribution of load.
func drawPicture(w io.Writer, results []result) error {
	x, label := axis(results)
	var plots [][]*plot.Plot
	if x == nil {
		p, err := spreadPlot(results)
		if err != nil {
			return err
		}
		plots = [][]*plot.Plot{{p}}
	} else {
		for _, row := range panels {
			var drawn []*plot.Plot
			for _, pan := range row {
				p, err := pan.plot(results, x, label)
				if err != nil {
					return err
				}
				drawn = append(drawn, p)
			}
			plots = append(plots, drawn)
		}
	}
	return picture.Write(w, 11*vg.Inch, 8*vg.Inch, plots)
}

// axis returns the parameter that varies, nil if none but the policy does.
func axis(results []result) (x func(r *result) float64, label string) {
	for i := range results {
		c, first := &results[i].config, &results[0].config
		switch {
		case c.k != first.k:
			return func(r *result) float64 { return r.config.perBackend() }, "F k / B"
		case c.load != first.load:
			return func(r *result) float64 {
				load, _ := strconv.ParseFloat(r.config.load, 64) // 0 for "document"
				return max(load, 0.009)
			}, "load, share of the capacity"
		}
	}
	return nil, ""
}

// name returns the name of a result's line.
func (r *result) name(results []result) string {
	for i := range results {
		if results[i].config.subset != r.config.subset {
			return r.config.policy + ", " + r.config.subset
		}
	}
	return r.config.policy
}

// lines groups the results that differ only in the axis.
func lines(results []result) (names []string, of map[string][]*result) {
	of = map[string][]*result{}
	for i := range results {
		r := &results[i]
		name := r.name(results)
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], r)
	}
	return names, of
}

func (pan panel) plot(results []result, x func(r *result) float64, label string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = pan.title, label
	p.Add(plotter.NewGrid())
	drawn := 0
	names, of := lines(results)
	for i, name := range names {
		var points plotter.XYs
		for _, r := range of[name] {
			if y := pan.value(r); y > 0 || !pan.log { // without hot frontends their p99 is 0
				points = append(points, plotter.XY{X: x(r), Y: y})
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn++
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(math.Copysign(1, a.X-b.X)) })
		if err := addLine(p, name, i, points); err != nil {
			return nil, err
		}
	}
	if label == "F k / B" && drawn > 0 {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks(results, x))
	}
	if pan.log && drawn > 0 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	}
	if !pan.legend {
		p.Legend = plot.NewLegend()
	}
	p.Legend.Top = true
	return p, nil
}

func addLine(p *plot.Plot, name string, i int, points plotter.XYs) error {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return fmt.Errorf("picture of %s: %w", name, err)
	}
	line.Color, dots.Color = palette[i%len(palette)], palette[i%len(palette)]
	line.Width, dots.Radius, dots.Shape = vg.Points(1.5), vg.Points(2), draw.CircleGlyph{}
	if i >= len(palette) {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(line)
	if len(points) < 20 {
		p.Add(dots)
	}
	p.Legend.Add(name, line)
	return nil
}

// decades marks 1, 2 and 5 of each power of ten.
func decades(low, high float64) (list []plot.Tick) {
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for _, x := range []float64{decade, 2 * decade, 5 * decade} {
			if x >= low && x <= high {
				list = append(list, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
			}
		}
	}
	return list
}

func ticks(results []result, x func(r *result) float64) (list []plot.Tick) {
	seen := map[float64]bool{}
	for i := range results {
		if v := x(&results[i]); !seen[v] {
			seen[v] = true
			list = append(list, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
		}
	}
	return list
}

// spreadPlot draws each backend's load, the backends in ascending order.
func spreadPlot(results []result) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "requests of a backend / mean"
	p.X.Label.Text = "share of the backends, the least busy first, %"
	p.Add(plotter.NewGrid())
	for i := range results {
		r := &results[i]
		points := make(plotter.XYs, len(r.loads))
		for j, load := range r.loads {
			points[j] = plotter.XY{X: 100 * float64(j) / loadPoints, Y: load}
		}
		name := r.name(results)
		if r.config.scenario != results[0].config.scenario {
			name += ", " + r.config.scenario
		}
		if err := addLine(p, name, i, points); err != nil {
			return nil, err
		}
	}
	p.Legend.Left, p.Legend.Top = true, true
	return p, nil
}
