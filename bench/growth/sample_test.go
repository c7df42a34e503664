package main

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSamplesAreKeptAndDrawn: samples of one kind are added to a file and read again, and only their
// picture is drawn.
func TestSamplesAreKeptAndDrawn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "samples.ndjson")
	s, err := readSamples(file)
	require.NoError(t, err)
	first := sample{ofEntries, 1000, map[string]float64{writeColumn: 365.4, diskColumn: 0}}
	second := sample{ofEntries, 3000, map[string]float64{writeColumn: 390, restartColumn: 0.25, diskColumn: 1}}
	require.NoError(t, s.add(first))
	require.NoError(t, s.add(second))
	s, err = readSamples(file)
	require.NoError(t, err)
	require.Equal(t, []sample{first, second}, s.all)

	require.NoError(t, s.draw(dir))
	picture, err := os.Open(filepath.Join(dir, "growth-entries.png"))
	require.NoError(t, err)
	defer picture.Close()
	config, err := png.DecodeConfig(picture)
	require.NoError(t, err)
	require.Equal(t, 960, config.Width)
	require.NoFileExists(t, filepath.Join(dir, "growth-documents.png"))

	require.NoError(t, os.WriteFile(file, []byte("{}\n{\n"), 0o600))
	_, err = readSamples(file)
	require.ErrorContains(t, err, "samples.ndjson:2: ")
}

// TestPublishedSamples: each line of a picture has published samples.
func TestPublishedSamples(t *testing.T) {
	s, err := readSamples("published.ndjson")
	require.NoError(t, err)
	measured := map[string]bool{}
	for _, one := range s.all {
		for column := range one.Values {
			measured[one.Of+": "+column] = true
		}
	}
	for of, plots := range pictures {
		for _, p := range plots {
			for _, l := range p.lines {
				require.True(t, measured[of+": "+l.column], "%s: %s", of, l.column)
			}
		}
	}
	for _, callers := range []int{1, 64} {
		for _, popular := range []bool{true, false} {
			rate, p50, p99 := getColumns(callers, popular)
			for _, column := range []string{rate, p50, p99} {
				require.True(t, measured[ofDocuments+": "+column], column)
			}
		}
	}
}
