package main

import (
	"fmt"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"docstore/bench/internal/picture"
)

// lineOf is a line of a plot: a column of the samples.
type lineOf struct {
	name, column string
	factor       float64 // from the unit of the column to that of the plot
}

// plotOf is a plot of some columns.
type plotOf struct {
	title string
	lines []lineOf
}

// pictures are the rows of plots of each kind of samples.
var pictures = map[string][]plotOf{
	ofEntries: {
		{"nanoseconds of an operation", []lineOf{
			{"write", writeColumn, 1}, {"write, processor time", cpuColumn, 1}, {"hit", hitColumn, 1}, {"hit, p99", hit99Column, 1}, {"miss", missColumn, 1},
		}},
		{"resources", []lineOf{
			{"disk, MB", diskColumn, 1}, {"anonymous memory, MB", memoryColumn, 1}, {"descriptors", descriptorsColumn, 1}, {"tables", tablesColumn, 1},
			{"restart, ms", restartColumn, 1},
		}},
	},
	ofDocuments: {
		{"thousands per second", []lineOf{
			{"indexed", indexedColumn, 1e-3}, {"gets, 64 callers, zipfian", "64 zipfian/s", 1e-3}, {"gets, 64 callers, uniform", "64 uniform/s", 1e-3},
			{"appended", appendedColumn, 1e-3}, {"gets, 1 caller, zipfian", "1 zipfian/s", 1e-3},
		}},
		{"microseconds of a get, uniform", []lineOf{
			{"64 callers, p99", "64 uniform p99 us", 1}, {"64 callers, p50", "64 uniform p50 us", 1},
			{"1 caller, p99", "1 uniform p99 us", 1}, {"1 caller, p50", "1 uniform p50 us", 1},
		}},
		{"resources", []lineOf{
			{"queue, MB", queueColumn, 1e3}, {"index, MB", indexColumn, 1e3}, {"anonymous memory, MB", memoryColumn, 1}, {"descriptors", descriptorsColumn, 1},
			{"start until ready, ms", readyColumn, 1e3},
		}},
	},
}

// draw writes a picture for each kind of samples into a directory: growth-KIND.png.
func (s *samples) draw(dir string) error {
	for of := range pictures {
		if err := draw(filepath.Join(dir, "growth-"+of+".png"), of, s.all); err != nil {
			return err
		}
	}
	return nil
}

// draw writes a row of plots of the samples of a kind into a file, if there are any.
func draw(to, of string, all []sample) error {
	var row []*plot.Plot
	for _, p := range pictures[of] {
		drawn, err := p.draw(of, all)
		if err != nil {
			return fmt.Errorf("%s: %w", p.title, err)
		}
		if drawn.X.Max > 0 { // it has a line
			row = append(row, drawn)
		}
	}
	if len(row) == 0 {
		return nil
	}
	return picture.Write(to, vg.Length(len(row))*5*vg.Inch, 4.5*vg.Inch, [][]*plot.Plot{row})
}

// legendShare is the part of the vertical axis that is added for the legend.
const legendShare = 0.45

func (p plotOf) draw(of string, all []sample) (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text = p.title, "millions of "+of
	drawn.X.Scale, drawn.Y.Scale = plot.LogScale{}, plot.LogScale{}
	drawn.X.Tick.Marker, drawn.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	drawn.Legend.Top, drawn.Legend.Left, drawn.Legend.Padding = true, true, vg.Millimeter/2
	drawn.Add(plotter.NewGrid())
	var lines []any
	for _, l := range p.lines {
		var points plotter.XYs
		for _, s := range all {
			// A logarithmic scale has no zero.
			if value := s.Values[l.column] * l.factor; s.Of == of && value > 0 {
				points = append(points, plotter.XY{X: float64(s.Size) / 1e6, Y: value})
			}
		}
		if len(points) > 0 {
			lines = append(lines, l.name, points)
		}
	}
	err := plotutil.AddLinePoints(drawn, lines...)
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		if axis.Min == axis.Max { // one sample
			axis.Min, axis.Max = axis.Min/2, axis.Max*2
		}
	}
	drawn.Y.Max *= math.Pow(drawn.Y.Max/drawn.Y.Min, legendShare)
	return drawn, err
}
