package queue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestMappedRewriteIsDamaged damages a rewrite in place after it was opened and read, as
// a memory error would: size and modification time stay. For every damaged byte each
// document is right, or unavailable because of damage, and never gone; dropped documents
// are never found.
func TestMappedRewriteIsDamaged(t *testing.T) {
	random := testseed.Rand(t)
	dir := t.TempDir()
	opts := queuetest.Options(vfs.OS)
	opts.BlockBytes = 20 // two entries or three
	w, err := queue.OpenWriter(dir, opts)
	require.NoError(t, err)
	var live, dead []queuetest.Item
	for i := range 1000 { // more rows than a checksum covers
		if random.IntN(2) > 0 {
			old := queuetest.Item{ID: "overwritten", Document: "dead"}
			old.Put(t, w)
			dead = append(dead, old)
			continue
		}
		it := queuetest.Item{ID: fmt.Sprint(i), Document: fmt.Sprint(i)}
		it.Put(t, w)
		live = append(live, it)
	}
	require.NoError(t, w.Seal())
	last := queuetest.Item{ID: "overwritten", Document: "newest"}
	last.Put(t, w)
	require.NoError(t, w.Close())
	_, err = maintain.Compact(context.Background(), dir, &maintain.CompactOptions{MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	path := segment.Run{First: 1, Last: 1, Generation: 1}.Path(dir)
	info, err := os.Stat(path)
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	defer r.Close()
	queuetest.RequireDocuments(t, r, live)
	f := r.Files().Get(1)
	require.NotNil(t, f.Mapping)
	begin := int(f.Footer.Relocations)
	r.Files().Put(f)

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	damaged := 0
	requireHonest := func(at int, it *queuetest.Item, isLive bool) {
		document, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		if err == nil {
			require.True(t, isLive, "byte %d", at)
			require.Equal(t, it.Document, string(document))
			return
		}
		var gone *queue.GoneError
		if errors.As(err, &gone) {
			require.False(t, isLive, "byte %d: %s is there: %v", at, it.ID, err)
			return
		}
		require.True(t, segment.IsContent(err), "byte %d: %v", at, err)
		damaged++
	}
	damage := func(at int, with []byte) {
		_, err := file.WriteAt(with, int64(at))
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	requireAllHonest := func(at int) {
		// Documents with rows or blocks near the byte, and some others.
		near := len(live) * at / len(content)
		if at >= begin {
			near = len(live) * (at - begin) / (len(content) - begin)
		}
		for i := max(0, near-10); i < min(near+10, len(live)); i++ {
			requireHonest(at, &live[i], true)
		}
		requireHonest(at, &live[random.IntN(len(live))], true)
		requireHonest(at, &dead[random.IntN(len(dead))], false)
	}
	for at := range content {
		if random.IntN(crashtest.Share(10, 1)) > 0 {
			continue
		}
		damage(at, []byte{content[at] ^ 1<<random.IntN(8)})
		requireAllHonest(at)
		damage(at, content[at:at+1])
	}
	// A row that maps to another block, which lacks the entry.
	const rowBytes = 12
	for at := begin + segment.RelocationsHeadBytes + rowBytes; at+rowBytes < len(content)-segment.FooterBytes; at += rowBytes {
		offset := at + rowBytes - 4
		damage(offset, content[offset-rowBytes:][:4])
		requireAllHonest(at)
		damage(offset, content[offset:offset+4])
	}
	require.NotZero(t, damaged)
	queuetest.RequireDocuments(t, r, live)

	if !race.Enabled { // under the race detector a sync.Pool drops items at random
		id, dst := []byte(live[0].ID), make([]byte, 0, 100)
		require.Zero(t, testing.AllocsPerRun(100, func() { dst, err = r.DocumentFor(dst[:0], id, live[0].At) }))
	}
}
