// Package picture writes plots as PNG.
package picture

import (
	"fmt"
	"image/color"
	"maps"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Write draws rows of plots into a file; nil leaves a place empty.
func Write(path string, width, height vg.Length, plots [][]*plot.Plot) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(96))
	tiles := draw.Tiles{Rows: len(plots), Cols: len(plots[0]), PadX: vg.Millimeter * 5, PadY: vg.Millimeter * 5}
	for i, row := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j, tile := range row {
			if plots[i][j] != nil {
				plots[i][j].Draw(tile)
			}
		}
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(file); err != nil {
		_ = file.Close() // err is the cause
		return fmt.Errorf("%s: %w", path, err)
	}
	return file.Close()
}

// Series are the points of a line by its name.
type Series map[string]plotter.XYs

const (
	// legendShare is the part of the width that is left for the legend.
	legendShare = 0.15
	// maxLegend is the maximum number of lines that it names.
	maxLegend = 9
)

// colors of the lines, in the order of their names.
var colors = []color.RGBA{
	{0x1f, 0x5f, 0xa8, 0xff}, {0x7f, 0xb2, 0xe5, 0xff}, {0x2a, 0x80, 0x3c, 0xff}, {0x86, 0xc9, 0x8d, 0xff}, {0x70, 0x70, 0x70, 0xff},
	{0xb0, 0x3a, 0x2e, 0xff}, {0xe8, 0x9c, 0x8c, 0xff}, {0x6c, 0x3c, 0x9c, 0xff}, {0xd1, 0x9a, 0x00, 0xff},
}

// Lines draws a line for each series, with a legend unless there are too many. unit is that of the
// horizontal axis.
func Lines(title, unit string, of Series) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = unit
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, name := range slices.Sorted(maps.Keys(of)) {
		line, err := plotter.NewLine(of[name])
		if err != nil {
			return nil, err
		}
		line.Color = colors[i%len(colors)]
		p.Add(line)
		if len(of) <= maxLegend {
			p.Legend.Add(name, line)
		}
	}
	p.X.Max += (p.X.Max - p.X.Min) * legendShare
	return p, nil
}
