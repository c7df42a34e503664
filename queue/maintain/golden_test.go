package maintain_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateFlag = flag.Bool("update", false, "write the golden files")

// TestGoldenRewrites reads rewrites of this format version: one of a compaction, and one of a
// repair that lost a document with a known id, and a block. The first builds wrote no cursors into
// relocated blocks.
func TestGoldenRewrites(t *testing.T) {
	for name, rewrite := range map[string]func(t *testing.T, mem *vfs.Mem, items []queuetest.Item){
		"compact": func(t *testing.T, mem *vfs.Mem, _ []queuetest.Item) {
			_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
				FS: mem, MaxDead: 0.01, Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
			})
			require.NoError(t, err)
		},
		"repair": func(t *testing.T, mem *vfs.Mem, items []queuetest.Item) {
			name := segment.Path(queuetest.Dir, 1, segment.SealedSuffix)
			content, err := vfs.ReadFile(mem, name)
			require.NoError(t, err)
			content[bytes.Index(content, []byte(items[0].Document))] ^= 1
			clear(content[items[2].At.Block+4 : items[3].At.Block])
			require.NoError(t, vfs.WriteFileAtomic(mem, name, content))
			_, err = maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{
				FS: mem, Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
			})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const file = "0000000001-0000000001.0001.seg"
			first, now := filepath.Join("testdata", "v0-"+name, file), filepath.Join("testdata", "v0-"+name+"-cursors", file)
			files, items := queuetest.SmallQueue(t, "none", true)
			mem := queuetest.SourceWith(t, files)
			rewrite(t, mem, items)
			written, err := vfs.ReadFile(mem, queuetest.Dir+"/"+file)
			require.NoError(t, err)
			if *updateFlag {
				require.NoError(t, os.MkdirAll(filepath.Dir(now), 0o755))
				require.NoError(t, os.WriteFile(now, written, 0o644))
			}
			golden, err := os.ReadFile(now)
			require.NoError(t, err)
			require.Equal(t, hex.Dump(golden), hex.Dump(written))
			requireGoldenRewrite(t, name, file, golden, files, items)
			golden, err = os.ReadFile(first)
			require.NoError(t, err)
			requireGoldenRewrite(t, name, file, golden, files, items)
		})
	}
}

// requireGoldenRewrite checks that the queue with the rewrite has the items.
func requireGoldenRewrite(t *testing.T, name, file string, golden []byte, files map[string][]byte, items []queuetest.Item) {
	t.Helper()
	mem := queuetest.SourceWith(t, map[string][]byte{file: golden, "0000000002.seg": files["0000000002.seg"]})
	queuetest.RequireSound(t, mem)
	r := queuetest.OpenReader(t, mem)
	kinds := map[string]int{}
	for _, it := range items {
		document, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		var gone *queue.GoneError
		var lost *queue.LostError
		switch {
		case errors.As(err, &gone):
			kinds["gone"]++
		case errors.As(err, &lost):
			kinds["lost"]++
		case errors.Is(err, queue.ErrDeleted):
			kinds["deleted"]++
		default:
			require.NoError(t, err)
			require.Equal(t, it.Document, string(document))
			kinds["found"]++
		}
	}
	want := map[string]map[string]int{
		"compact": {"gone": 3, "found": 5}, "repair": {"lost": 2, "found": 6},
	}
	require.Equal(t, want[name], kinds)
	assert.Equal(t, "cursor-7", string(queuetest.OpenWriter(t, queuetest.Options(mem)).Cursor()))
}
