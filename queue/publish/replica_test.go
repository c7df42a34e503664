package publish

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// copies is a Source that returns the copies in turn.
type copies [][]byte

func (c copies) Fetch(_ context.Context, _ File, store func(io.Reader) error) error {
	err := errors.New("no copy")
	for _, content := range c {
		if err = store(bytes.NewReader(content)); err == nil {
			return nil
		}
	}
	return err
}

// TestFlippedByteIsNeverFetched changes each byte of an object in the bucket. The file does
// not get its name, and a Source with an undamaged copy replaces the bucket.
func TestFlippedByteIsNeverFetched(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "document"})
	m := publish(t, b, s).Manifest
	object, path := m.Files[0].object(), filepath.Join("replica", m.Files[0].Name)
	content, err := bucket.ReadAll(t.Context(), b, object, 1<<20)
	require.NoError(t, err)
	for at := range content {
		damaged := bytes.Clone(content)
		damaged[at] ^= 1
		require.NoError(t, b.Delete(t.Context(), object))
		require.NoError(t, b.Put(t.Context(), object, readerOf(damaged), int64(len(damaged))))
		mem, fetched := vfs.NewMem(), 0
		options := &Options{FS: mem, Fetched: func(_ File, fromSource bool) {
			require.True(t, fromSource)
			fetched++
		}}
		require.ErrorIs(t, NewReplica(b, "replica", options).Fetch(t.Context(), m), ErrCorrupt, "byte %d", at)
		options.Source = copies{damaged, content[:at], append(bytes.Clone(content), 0)}
		require.ErrorIs(t, NewReplica(b, "replica", options).Fetch(t.Context(), m), ErrCorrupt, "byte %d", at)
		names, err := mem.List("replica")
		require.NoError(t, err)
		require.NotContains(t, names, m.Files[0].Name)
		require.Zero(t, fetched)
		options.Source = copies{damaged, content}
		require.NoError(t, NewReplica(b, "replica", options).Fetch(t.Context(), m))
		got, err := vfs.ReadFile(mem, path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
		require.Equal(t, 1, fetched)
	}
}

// TestReserveIsCalledBeforeTheDownload: its error ends the Fetch.
func TestReserveIsCalledBeforeTheDownload(t *testing.T) {
	b, s, mem := newBucket(t), newSource(), vfs.NewMem()
	s.write(t, true, [2]string{"a", "document"})
	m := publish(t, b, s).Manifest
	refusal, asked := errors.New("no space"), int64(0)
	options := &Options{FS: mem, Reserve: func(files int, bytes int64) error {
		require.Equal(t, len(m.Files), files)
		asked = bytes
		return refusal
	}}
	require.ErrorIs(t, NewReplica(b, "replica", options).Fetch(t.Context(), m), refusal)
	require.Equal(t, m.Bytes(), asked)
	refusal = nil
	require.NoError(t, NewReplica(b, "replica", options).Fetch(t.Context(), m))
	asked = 0
	require.NoError(t, NewReplica(b, "replica", options).Fetch(t.Context(), m))
	require.Zero(t, asked, "nothing is missing")
}
