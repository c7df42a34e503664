package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"docstore/bench/internal/picture"
)

// The rows of panels: the article's a to d, and rocksteadier and consistent.
var panels = [][]struct {
	title   string
	variant int
}{
	{{"a. random", 0}, {"b. deterministic", 2}, {"c. ringsteady", 5}},
	{{"d. ringsteady, backend scaling", 6}, {"rocksteadier", 7}, {"consistent", 3}},
}

var (
	dots  = color.NRGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	faint = color.NRGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0x28} // for overlapping dots
)

const pictureWidth, pictureHeight = 12 * vg.Inch, 7 * vg.Inch

// drawBalance draws utilization against frontends per backend.
func drawBalance(path string) error {
	var plots [][]*plot.Plot
	for _, row := range panels {
		var drawn []*plot.Plot
		for _, panel := range row {
			p, err := balance(panel.title, variants[panel.variant])
			if err != nil {
				return err
			}
			drawn = append(drawn, p)
		}
		plots = append(plots, drawn)
	}
	return picture.Write(path, pictureWidth, pictureHeight, plots)
}

// drawLots draws utilization for several lot sizes, and their mean utilization against
// the diversity of the subsets.
func drawLots(path string) error {
	var drawn []*plot.Plot
	var places plotter.XYLabels
	for _, size := range lotSizes {
		v := lotVariant(size)
		p, err := balance(v.title, v)
		if err != nil {
			return err
		}
		drawn = append(drawn, p)
		utilization, diversity, err := tradeOff(v)
		if err != nil {
			return err
		}
		places.XYs = append(places.XYs, plotter.XY{X: diversity, Y: utilization})
		places.Labels = append(places.Labels, "  "+v.title)
	}
	p, err := drawTradeOff(places)
	if err != nil {
		return err
	}
	return picture.Write(path, pictureWidth, pictureHeight, [][]*plot.Plot{drawn[:3], append(drawn[3:], p)})
}

// drawTradeOff plots mean utilization against mean diversity.
func drawTradeOff(places plotter.XYLabels) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "all cases: diversity against balance"
	p.X.Label.Text = "different subsets by the frontend"
	p.Y.Label.Text = "mean utilization"
	line, points, err := plotter.NewLinePoints(places)
	if err != nil {
		return nil, err
	}
	labels, err := plotter.NewLabels(places)
	if err != nil {
		return nil, err
	}
	line.Color, points.Color = dots, dots
	points.Shape = draw.CircleGlyph{}
	p.X.Min, p.X.Max = 0.5, 1.1
	p.Add(plotter.NewGrid(), line, points, labels)
	return p, nil
}

// balance plots the utilization of each case.
func balance(title string, v variant) (*plot.Plot, error) {
	points, err := figure2(v)
	if err != nil {
		return nil, err
	}
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "frontends per backend"
	p.Y.Label.Text = "utilization"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.05, 13, 0, 1.02
	places := make(plotter.XYs, len(points))
	for i, point := range points {
		places[i] = plotter.XY{X: point.ratio, Y: point.utilization}
	}
	s, err := plotter.NewScatter(places)
	if err != nil {
		return nil, err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: faint, Radius: vg.Points(0.8), Shape: draw.CircleGlyph{}}
	p.Add(plotter.NewGrid(), s)
	return p, nil
}
