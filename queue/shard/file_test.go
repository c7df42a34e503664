package shard

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

func TestLayoutFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "jobs")
	one := Layout{Shards: 1}
	require.NoError(t, Write(vfs.OS, dir, one))
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, fs.ErrNotExist, "one shard needs no file")
	got, err := Read(vfs.OS, dir)
	require.NoError(t, err)
	require.Equal(t, one, got)
	l := Layout{Shards: 64, Seed: 1<<64 - 1}
	require.NoError(t, Write(vfs.OS, dir, l))
	got, err = Read(vfs.OS, dir)
	require.NoError(t, err)
	require.Equal(t, l, got)

	require.NoError(t, Write(vfs.OS, dir, l), "the same layout again")
	for _, other := range []Layout{one, {Shards: 32, Seed: l.Seed}, {Shards: 64, Seed: 1}} {
		err := Write(vfs.OS, dir, other)
		require.ErrorIs(t, err, ErrDiffers)
		require.ErrorContains(t, err, "has 64 shards")
	}
	for _, shards := range []int{-2, 0, 3, MaxShards * 2} {
		require.Error(t, Write(vfs.OS, t.TempDir(), Layout{Shards: shards}), shards)
	}
}

// The file is part of the format: it must stay readable.
func TestLayoutFileOfFormat1(t *testing.T) {
	dir := t.TempDir()
	writeLayoutFile(t, dir, `{"format":1,"shards":64,"seed":"123","crc":"9a1b4924"}`)
	l, err := Read(vfs.OS, dir)
	require.NoError(t, err)
	require.Equal(t, Layout{Shards: 64, Seed: 123}, l)
}

func TestBadLayoutFile(t *testing.T) {
	sealed := func(shards int) string {
		f := layoutFile{Format: layoutFormat, Layout: Layout{Shards: shards, Seed: 5}}
		f.CRC = f.sum()
		return string(f.encode())
	}
	for name, test := range map[string]struct {
		content string
		want    error
	}{
		"empty":               {"", ErrCorrupt},
		"not JSON":            {"64", ErrCorrupt},
		"cut":                 {sealed(64)[:30], ErrCorrupt},
		"no checksum":         {`{"format":1,"shards":64,"seed":"5"}`, ErrCorrupt},
		"another seed":        {strings.Replace(sealed(64), `"5"`, `"4"`, 1), ErrCorrupt},
		"unknown field":       {strings.Replace(sealed(64), `{`, `{"more":1,`, 1), ErrCorrupt},
		"format 0":            {strings.Replace(sealed(64), `:1,`, `:0,`, 1), ErrCorrupt},
		"newer format":        {`{"format":2,"ranges":[]}`, ErrNewerFormat},
		"not a power of two":  {sealed(48), ErrCorrupt},
		"one shard":           {sealed(1), ErrCorrupt},
		"too many shards":     {sealed(MaxShards * 2), ErrCorrupt},
		"longer than allowed": {sealed(64) + strings.Repeat(" ", maxLayoutBytes), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeLayoutFile(t, dir, test.content)
			_, err := Read(vfs.OS, dir)
			require.ErrorIs(t, err, test.want)
			require.ErrorContains(t, err, filepath.Join(dir, LayoutName))
			require.ErrorIs(t, Write(vfs.OS, dir, Layout{Shards: 64, Seed: 5}), test.want, "a file that cannot be read is not replaced")
		})
	}
}

// Every flipped bit is found, or leaves the same layout.
func TestLayoutFileWithFlippedBits(t *testing.T) {
	dir := t.TempDir()
	l := Layout{Shards: 16, Seed: 99}
	require.NoError(t, Write(vfs.OS, dir, l))
	content, err := os.ReadFile(filepath.Join(dir, LayoutName))
	require.NoError(t, err)
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			got, err := parseLayout(content)
			require.True(t, err != nil || got == l, "%q", content)
			content[i] ^= 1 << bit
		}
	}
}

func writeLayoutFile(t *testing.T, dir, content string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, LayoutName), []byte(content), 0o600))
}
