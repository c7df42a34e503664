// Longrun draws the samples of TestLongRun (test/e2e) as one picture: resident memory,
// descriptors, disk and latency over time.
//
//	go run ./longrun -samples ../dist/longrun/samples.ndjson -picture ../docs/images/longrun.png
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"docstore/bench/internal/command"
	"docstore/bench/internal/picture"
)

// sample is a line of the file that the test writes.
type sample struct {
	Seconds   float64            `json:"seconds"`
	Gets      int                `json:"gets"`
	P50       float64            `json:"p50_seconds"`
	P99       float64            `json:"p99_seconds"`
	Disk      map[string]float64 `json:"disk_bytes"`
	Processes map[string]struct {
		Resident    float64 `json:"resident_bytes"`
		Descriptors float64 `json:"descriptors"`
	} `json:"processes"`
}

func main() {
	command.Main(func(args []string) error {
		flags := flag.NewFlagSet("longrun", flag.ContinueOnError)
		samples := flags.String("samples", "", "file of the samples")
		to := flags.String("picture", "", "PNG file to write")
		if err := command.Parse(flags, args); err != nil {
			return err
		}
		return run(*samples, *to)
	})
}

func run(from, to string) error {
	input, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	samples, err := read(input)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return write(to, samples)
}

// read reads the samples. The last line of an interrupted run may be incomplete: it is left
// out.
func read(from io.Reader) (samples []sample, err error) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		var s sample
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
}

// timeUnit returns the unit of the horizontal axis for a run, and its seconds.
func timeUnit(samples []sample) (name string, seconds float64) {
	if len(samples) > 0 && samples[len(samples)-1].Seconds > 2*3600 {
		return "hours", 3600
	}
	return "minutes", 60
}

const mebibyte = 1 << 20

// smallest is drawn for smaller values: a logarithmic scale has no zero.
const smallest = 0.01

// write draws the picture.
func write(to string, samples []sample) error {
	unitName, unit := timeUnit(samples)
	resident, descriptors, disk, latency := picture.Series{}, picture.Series{}, picture.Series{}, picture.Series{}
	for _, s := range samples {
		add := func(to picture.Series, name string, y float64) {
			to[name] = append(to[name], plotter.XY{X: s.Seconds / unit, Y: max(y, smallest)})
		}
		for name, p := range s.Processes {
			add(resident, name, p.Resident/mebibyte)
			add(descriptors, name, p.Descriptors)
		}
		for name, bytes := range s.Disk {
			add(disk, name, bytes/mebibyte)
		}
		if s.Gets > 0 {
			add(latency, "p50", s.P50*1000)
			add(latency, "p99", s.P99*1000)
		}
	}
	var plots [][]*plot.Plot
	for _, row := range [][]struct {
		title string
		of    picture.Series
		log   bool
	}{
		{{"resident memory, MiB", resident, false}, {"open descriptors", descriptors, false}},
		{{"allocated disk, MiB", disk, true}, {"latency of single gets, ms", latency, true}},
	} {
		var drawn []*plot.Plot
		for _, one := range row {
			p, err := picture.Lines(one.title, unitName, one.of)
			if err != nil {
				return err
			}
			if one.log {
				p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
			} else {
				p.Y.Min = 0
			}
			drawn = append(drawn, p)
		}
		plots = append(plots, drawn)
	}
	return picture.Write(to, 12*vg.Inch, 8*vg.Inch, plots)
}
