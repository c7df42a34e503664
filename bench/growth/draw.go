package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"docstore/bench/internal/picture"
)

// draw writes a row of plots into a file.
func draw(to string, g growth) error {
	line := func(value func(sample) float64) (points plotter.XYs) {
		for _, s := range g.samples {
			points = append(points, plotter.XY{X: float64(s.size) / 1e6, Y: max(value(s), smallest)})
		}
		return points
	}
	times, err := lines("entries, nanoseconds", []any{
		"write", line(func(s sample) float64 { return float64(s.write) }),
		"hit", line(func(s sample) float64 { return float64(s.hit) }),
		"hit, p99", line(func(s sample) float64 { return float64(s.hit99) }),
		"miss", line(func(s sample) float64 { return float64(s.miss) }),
	})
	if err != nil {
		return err
	}
	sizes, err := lines("entries, resources", []any{
		"disk, MB", line(func(s sample) float64 { return float64(s.disk) / 1e6 }),
		"anonymous memory, MB", line(func(s sample) float64 { return float64(s.anonymous) / 1e6 }),
		"descriptors", line(func(s sample) float64 { return float64(s.descriptors) }),
		"restart, ms", line(func(s sample) float64 { return s.restart.Seconds() * 1000 }),
	})
	if err != nil {
		return err
	}
	return picture.Write(to, 12*vg.Inch, 4.5*vg.Inch, [][]*plot.Plot{{times, sizes}})
}

// smallest is drawn for smaller values: a logarithmic scale has no zero.
const smallest = 0.1

// legendRoom is the factor by which the vertical axis is longer, for the legend.
const legendRoom = 20

func lines(title string, named []any) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, "millions"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	err := plotutil.AddLinePoints(p, named...)
	p.Y.Max *= legendRoom
	return p, err
}
