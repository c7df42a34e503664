package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A picture stands below a section.
type picture struct {
	table, file, title string
	draw               func(s set) ([]*plot.Plot, error) // panels; none if nothing was measured
}

var pictures = []picture{
	{"article", "bench-article.png", "operations a second", func(s set) ([]*plot.Plot, error) {
		return bars(s, "article", "ops/s", "docstore", "fillrandom", "readrandom", "readmissing", "readseq")
	}},
	{"growth", "bench-growth.png", "cost as the data grow", growthPlots},
	{"latency", "bench-latency.png", "percentiles of single operations", func(s set) ([]*plot.Plot, error) {
		return percentiles(s, "latency", []string{"fillrandom", "readrandom", "readmissing"}, "docstore")
	}},
	{"calls", "bench-calls.png", "calls a second", func(s set) ([]*plot.Plot, error) {
		return bars(s, "calls", "ops/s", "boxcar", "calls, 1 callers, 1024 bytes", "calls, 64 callers, 1024 bytes", "calls, 1024 callers, 1024 bytes")
	}},
	{"rpc", "bench-open.png", "percentiles at half of grpc-go's limit", func(s set) ([]*plot.Plot, error) {
		return percentiles(s, "rpc", []string{"open"}, "boxcar")
	}},
	{"documents", "bench-documents.png", "documents a second", func(s set) ([]*plot.Plot, error) {
		return bars(s, "documents", "documents/s", "docstore", oneByOne, "64 callers, batches of 10, uniform", by50)
	}},
	{"documents", "bench-documents-latency.png", "percentiles of calls", func(s set) ([]*plot.Plot, error) {
		return percentiles(s, "documents", []string{oneByOne, by50}, "docstore")
	}},
}

const (
	panelWidth    = 4.2 * vg.Inch
	pictureHeight = 3.8 * vg.Inch
	pictureDPI    = 96
)

var (
	oursColour   = color.NRGBA{0xc0, 0x20, 0x20, 0xff}
	theirsColour = color.NRGBA{0x8a, 0x9a, 0xaa, 0xff}
	palette      = []color.Color{
		color.NRGBA{0x1f, 0x77, 0xb4, 0xff}, color.NRGBA{0x2c, 0xa0, 0x2c, 0xff}, color.NRGBA{0xff, 0x7f, 0x0e, 0xff},
		color.NRGBA{0x94, 0x67, 0xbd, 0xff}, color.NRGBA{0x8c, 0x56, 0x4b, 0xff}, color.NRGBA{0xe3, 0x77, 0xc2, 0xff},
		color.NRGBA{0x17, 0xbe, 0xcf, 0xff}, color.NRGBA{0xbc, 0xbd, 0x22, 0xff}, color.NRGBA{0x7f, 0x7f, 0x7f, 0xff},
	}
)

// drawAll draws what there is, and returns the links by table.
func drawAll(s set, dir, images string) (map[string][]string, error) {
	links := map[string][]string{}
	if err := os.MkdirAll(filepath.Join(dir, images), 0o755); err != nil {
		return nil, err
	}
	for _, p := range pictures {
		plots, err := p.draw(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		if len(plots) == 0 {
			continue
		}
		if err := save(filepath.Join(dir, images, p.file), plots); err != nil {
			return nil, err
		}
		links[p.table] = append(links[p.table], fmt.Sprintf("![%s](%s/%s)", p.title, images, p.file))
	}
	return links, nil
}

// save writes panels side by side.
func save(name string, plots []*plot.Plot) error {
	canvas := vgimg.NewWith(vgimg.UseWH(panelWidth*vg.Length(len(plots)), pictureHeight), vgimg.UseDPI(pictureDPI))
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Millimeter * 5, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 3, PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2}
	for i, tile := range plot.Align([][]*plot.Plot{plots}, tiles, draw.New(canvas))[0] {
		plots[i].Draw(tile)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(file); err != nil {
		_ = file.Close() // the picture is spoilt either way
		return err
	}
	return file.Close()
}

// bars has a panel for each phase and a bar for each contestant, ours in another colour.
func bars(s set, table, figure, ours string, phases ...string) (plots []*plot.Plot, err error) {
	for _, phase := range phases {
		var names []string
		var mine, theirs plotter.Values
		for _, name := range slices.Backward(s.contestants(table)) { // the first one on top
			c, ok := s.cell(table, name, phase, figure)
			if !ok {
				continue
			}
			names = append(names, name)
			if strings.HasPrefix(name, ours) {
				mine, theirs = append(mine, c.Median), append(theirs, 0)
			} else {
				mine, theirs = append(mine, 0), append(theirs, c.Median)
			}
		}
		if len(names) == 0 {
			continue
		}
		p := plot.New()
		p.Title.Text = phase
		for _, group := range []struct {
			values plotter.Values
			colour color.Color
		}{{mine, oursColour}, {theirs, theirsColour}} {
			chart, err := plotter.NewBarChart(group.values, 10)
			if err != nil {
				return nil, err
			}
			chart.Horizontal, chart.Color, chart.LineStyle.Width = true, group.colour, 0
			p.Add(chart)
		}
		p.NominalY(names...)
		p.X.Min, p.X.Tick.Marker = 0, ticks{}
		p.X.Label.Text = figure
		plots = append(plots, p)
	}
	return plots, nil
}

// ticks are numbers as the tables write them.
type ticks struct{}

func (ticks) Ticks(least, greatest float64) []plot.Tick {
	all := plot.DefaultTicks{}.Ticks(least, greatest)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = number(all[i].Value)
		}
	}
	return all
}

// percentileMarks are those that all benches keep, with their place on the axis: as many
// nines as lie before them.
var percentileMarks = []struct {
	figure, label string
	at            float64
}{
	{"p50 ns", "50", -math.Log10(0.5)}, {"p90 ns", "90", 1}, {"p99 ns", "99", 2}, {"p999 ns", "99.9", 3},
}

// percentiles has a panel for each phase and a line for each contestant.
func percentiles(s set, table string, phases []string, ours string) (plots []*plot.Plot, err error) {
	for _, phase := range phases {
		p := plot.New()
		p.Title.Text = phase
		p.X.Label.Text, p.Y.Label.Text = "percentile", "time"
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, durationTicks{}
		p.Legend.Top, p.Legend.Left = true, true
		var marks []plot.Tick
		for _, m := range percentileMarks {
			marks = append(marks, plot.Tick{Value: m.at, Label: m.label})
		}
		p.X.Tick.Marker = plot.ConstantTicks(marks)
		lines := 0
		for i, name := range s.contestants(table) {
			var points plotter.XYs
			for _, m := range percentileMarks {
				if c, ok := s.cell(table, name, phase, m.figure); ok && c.Median > 0 {
					points = append(points, plotter.XY{X: m.at, Y: c.Median})
				}
			}
			if len(points) < 2 {
				continue
			}
			if err := addLine(p, name, points, colourOf(name, ours, i)); err != nil {
				return nil, err
			}
			lines++
		}
		if lines > 0 {
			plots = append(plots, p)
		}
	}
	return plots, nil
}

func colourOf(name, ours string, i int) color.Color {
	if name == ours {
		return oursColour
	}
	return palette[i%len(palette)]
}

func addLine(p *plot.Plot, name string, points plotter.XYs, colour color.Color) error {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = colour, colour
	line.Width = 1.5
	dots.Shape = draw.CircleGlyph{}
	p.Add(line, dots)
	p.Legend.Add(name, line)
	return nil
}

// durationTicks are the powers of ten of nanoseconds.
type durationTicks struct{}

func (durationTicks) Ticks(least, greatest float64) []plot.Tick {
	all := plot.LogTicks{Prec: -1}.Ticks(least, greatest)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = duration(all[i].Value)
		}
	}
	return all
}

// growthPlots have the cost of an operation against the number of entries.
func growthPlots(s set) (plots []*plot.Plot, err error) {
	for _, phase := range s.phases("growth") {
		p := plot.New()
		p.Title.Text = phase
		p.X.Label.Text, p.Y.Label.Text = "entries", "time of an operation"
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, countTicks{}
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, durationTicks{}
		p.Legend.Top, p.Legend.Left = true, true
		lines := 0
		for i, name := range s.contestants("growth") {
			var points plotter.XYs
			for _, num := range s.nums("growth") {
				if c, ok := s.withNum("growth", num).cell("growth", name, phase, "ops/s"); ok {
					points = append(points, plotter.XY{X: float64(num), Y: 1e9 / c.Median})
				}
			}
			if len(points) < 2 {
				continue
			}
			if err := addLine(p, name, points, colourOf(name, "docstore", i)); err != nil {
				return nil, err
			}
			lines++
		}
		if lines > 0 {
			plots = append(plots, p)
		}
	}
	return plots, nil
}

// countTicks are the powers of ten of a number.
type countTicks struct{}

func (countTicks) Ticks(least, greatest float64) []plot.Tick {
	all := plot.LogTicks{Prec: -1}.Ticks(least, greatest)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = number(all[i].Value)
		}
	}
	return all
}
