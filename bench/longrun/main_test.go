package main

import (
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	var file strings.Builder
	for i := range 50 {
		fmt.Fprintf(&file, `{"seconds":%d,"gets":%d,"p50_seconds":0.001,"p99_seconds":0.0%d,"disk_bytes":{"queue":%d},`+
			`"processes":{"a-0":{"resident_bytes":%d,"descriptors":30}}}`+"\n", 10*i, i, i+1, i<<20, (50+i%7)<<20)
	}
	samples, err := read(strings.NewReader(file.String() + `{"seconds":500,"ge`))
	require.NoError(t, err)
	require.Len(t, samples, 50)
	name := filepath.Join(t.TempDir(), "longrun.png")
	require.NoError(t, write(name, samples))
	drawn, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drawn.Close()) })
	picture, err := png.Decode(drawn)
	require.NoError(t, err)
	require.Equal(t, 12*96, picture.Bounds().Dx())

	_, err = read(strings.NewReader("{\n"))
	require.Error(t, err)
}
