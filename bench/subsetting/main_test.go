package main

import (
	"bytes"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTablesAndPicture(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "balance.png")
	var out bytes.Buffer
	require.NoError(t, run(&out, []string{"-picture", picture}))
	for _, v := range variants {
		require.Contains(t, out.String(), "| "+v.title+" |")
	}
	require.Contains(t, out.String(), "| roundrobin | 1.000 | 15 |")
	file, err := os.Open(picture)
	require.NoError(t, err)
	defer file.Close()
	image, err := png.Decode(file)
	require.NoError(t, err)
	require.Equal(t, 1152, image.Bounds().Dx())
}

func TestConnections(t *testing.T) {
	a, err := variants[1].algorithm()
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 1, 1}, connections(a, 3, 4, 2))
}

func TestUsage(t *testing.T) {
	require.EqualError(t, run(io.Discard, []string{"more"}), `unexpected argument "more"; see -help`)
	require.Error(t, run(&bytes.Buffer{}, []string{"-picture", filepath.Join(t.TempDir(), "missing", "x.png")}))
}
