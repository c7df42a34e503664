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
	require.NoError(t, s.add(first, indexColumns))
	require.NoError(t, s.add(second, indexColumns))
	s, err = readSamples(file)
	require.NoError(t, err)
	require.Equal(t, []sample{first, second}, s.all)
	require.Equal(t, "| 1000 | 365 | - | - |", first.row(indexColumns[:3]))

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

// TestPublishedSamples: the published samples have only known columns, and each line of a picture has
// samples.
func TestPublishedSamples(t *testing.T) {
	s, err := readSamples("published.ndjson")
	require.NoError(t, err)
	for of, columns := range map[string][]column{ofEntries: indexColumns, ofDocuments: documentColumns()} {
		titles := map[string]bool{}
		for _, c := range columns {
			titles[c.title] = true
		}
		measured := map[string]bool{}
		for _, one := range s.all {
			for title := range one.Values {
				if one.Of == of {
					require.True(t, titles[title], title)
					measured[title] = true
				}
			}
		}
		for _, p := range pictures[of] {
			for _, l := range p.lines {
				require.True(t, measured[l.column], "%s: %s", of, l.column)
			}
		}
	}
}
