package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// kept reads a dead-letter file. It omits a torn line.
func kept(t *testing.T, fsys vfs.FS, path string) (lines []DeadLetter) {
	t.Helper()
	content, err := vfs.ReadFile(fsys, path)
	require.NoError(t, err)
	for text := range bytes.Lines(content) {
		var line DeadLetter
		if json.Unmarshal(text, &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestDeadLettersAreBounded: the size of the file is limited, and a torn line does not affect the
// next one.
func TestDeadLettersAreBounded(t *testing.T) {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("/dir"))
	d := NewDeadLetters(disk, "/dir/bad")
	d.maxBytes = 1000
	record := &Record{Document: []byte("text"), Problem: errors.New("bad")}
	for n := range 100 {
		require.NoError(t, d.add(time.Now(), fmt.Sprint("log:", n), record))
		require.NoError(t, d.sync())
	}
	last := 99
	for _, path := range []string{d.path, d.path + ".1"} {
		info, err := disk.Stat(path)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size, d.maxBytes)
		lines := kept(t, disk, path)
		for i := range lines {
			require.Equal(t, fmt.Sprint("log:", last-len(lines)+1+i), lines[i].At)
		}
		last -= len(lines)
	}
	require.Less(t, last, 90)

	file, err := disk.OpenAppend(d.path)
	require.NoError(t, err)
	_, err = file.Write([]byte(`{"torn`))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	before := len(kept(t, disk, d.path))
	d.maxBytes = maxDeadLettersBytes
	require.NoError(t, d.add(time.Now(), "log:0", record))
	require.NoError(t, d.sync())
	require.Len(t, kept(t, disk, d.path), before+1)
}
