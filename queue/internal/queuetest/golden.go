package queuetest

import (
	"embed"
	"fmt"
	"path"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// golden has the segments that were written when their format version was new. TestGolden of
// package queue writes and reads them.
//
//go:embed testdata
var golden embed.FS

// SmallItems returns the entries of the queue that SmallQueue returns, without addresses.
func SmallItems() (items []Item) {
	for i := range 8 {
		it := Item{ID: fmt.Sprint("id-", i%5), Document: Posting(i)[:120] + Posting(i)[40:120]}
		switch i {
		case 2:
			it.Document, it.Deleted = "", true
		case 3:
			it.Expires = Start.AddDate(1, 0, 0)
		case 4:
			it.Document = ""
		}
		items = append(items, it)
	}
	return items
}

// SmallQueue returns the files of the queue ID with two small segments, by name: one with a
// dictionary if the codec takes one, cursors, expiries and a delete; and one after it, which
// is left open if seal is false.
func SmallQueue(t testing.TB, codec string, seal bool) (map[string][]byte, []Item) {
	files := map[string][]byte{}
	dir := path.Join("testdata", "v0-"+codec)
	entries, err := golden.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		files[e.Name()], err = golden.ReadFile(path.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	mem := MemWith(t, files)
	if seal {
		w, err := queue.OpenWriter(Dir, Options(mem))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		delete(files, "0000000002.open")
		files["0000000002.seg"], err = vfs.ReadFile(mem, segment.Path(Dir, 2, segment.SealedSuffix))
		require.NoError(t, err)
	}
	items, found := SmallItems(), Scan(t, OpenReader(t, mem), queue.Position{})
	require.Len(t, found, len(items))
	for i := range items {
		items[i].At, items[i].Next = found[i].At, found[i].Next
	}
	return files, items
}
