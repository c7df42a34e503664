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

func TestTablesAndPictures(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, run(&out, []string{"-pictures", dir}))
	for _, v := range variants {
		require.Contains(t, out.String(), "| "+v.title+" |")
	}
	require.Contains(t, out.String(), "| roundrobin | 1.000 | 15 |")
	for _, name := range []string{balancePicture, lotsPicture} {
		picture, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		image, err := png.Decode(bytes.NewReader(picture))
		require.NoError(t, err)
		require.Equal(t, 1152, image.Bounds().Dx())
	}
}

func TestConnections(t *testing.T) {
	a, err := variants[1].algorithm()
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 1, 1}, connections(a, 3, 4, 2))
}

func TestUsage(t *testing.T) {
	require.EqualError(t, run(io.Discard, []string{"more"}), `unexpected argument "more"; see -help`)
	require.Error(t, run(&bytes.Buffer{}, []string{"-pictures", filepath.Join(t.TempDir(), "missing")}))
}
