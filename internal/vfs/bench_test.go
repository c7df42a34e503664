package vfs

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReadAt and BenchmarkWrite compare a File of OS with the underlying *os.File:
// the overhead of the FS interface.

func BenchmarkReadAt(b *testing.B) {
	path := filepath.Join(b.TempDir(), "file")
	require.NoError(b, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	through, err := OS.Open(path)
	require.NoError(b, err)
	defer through.Close()
	direct, err := os.Open(path)
	require.NoError(b, err)
	defer direct.Close()
	for name, file := range map[string]io.ReaderAt{"by=vfs": through, "by=os": direct} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			page := make([]byte, 4<<10)
			for i := 0; b.Loop(); i++ {
				if _, err := file.ReadAt(page, int64(i%256)*int64(len(page))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, name := range []string{"by=vfs", "by=os"} {
		b.Run(name, func(b *testing.B) {
			var file io.WriteCloser
			path := filepath.Join(b.TempDir(), "file")
			var err error
			if file, err = os.Create(path); name == "by=vfs" {
				require.NoError(b, file.Close())
				file, err = OS.OpenAppend(path)
			}
			require.NoError(b, err)
			defer file.Close()
			b.ReportAllocs()
			record := make([]byte, 100)
			for b.Loop() {
				if _, err := file.Write(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
