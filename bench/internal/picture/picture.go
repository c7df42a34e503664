// Package picture writes plots as PNG.
package picture

import (
	"fmt"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Write draws rows of plots into a file.
func Write(path string, width, height vg.Length, plots [][]*plot.Plot) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(96))
	tiles := draw.Tiles{Rows: len(plots), Cols: len(plots[0]), PadX: vg.Millimeter * 5, PadY: vg.Millimeter * 5}
	for i, row := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j, tile := range row {
			plots[i][j].Draw(tile)
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
