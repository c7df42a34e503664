package shardset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/internal/checksum"
	"docstore/internal/jobs"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/shard"
)

const testDir = "/srv/jobs"

var (
	testLayout = shard.Layout{Shards: 8, Seed: 5}
	discard    = slog.New(slog.DiscardHandler)
	errCrash   = errors.New("crash")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMem(t *testing.T) *vfs.Mem {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("/srv"))
	require.NoError(t, mem.SyncDir("/"))
	return mem
}

// write appends records with ids from first to last and cursors.
func write(t *testing.T, fsys vfs.FS, first, last int) {
	w, err := Open(testDir, &Options{FS: fsys, Layout: testLayout})
	require.NoError(t, err)
	for n := first; n < last; n++ {
		require.NoError(t, w.Put(queue.Record{ID: fmt.Append(nil, n), Document: fmt.Append(nil, n), Cursor: fmt.Append(nil, "c:", n)}))
	}
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "Close is idempotent")
	require.ErrorIs(t, w.Put(queue.Record{ID: []byte("id")}), queue.ErrClosed)
	require.ErrorIs(t, w.Flush(), queue.ErrClosed)
	require.ErrorIs(t, w.Seal(), queue.ErrClosed)
}

func TestWriter(t *testing.T) {
	mem := newMem(t)
	write(t, mem, 0, 100)
	w, err := Open(testDir, &Options{FS: mem})
	require.NoError(t, err)
	require.Equal(t, testLayout, w.Layout())
	for _, cursor := range w.Cursors() {
		require.Equal(t, "c:99", string(cursor))
	}
	_, err = Open(testDir, &Options{FS: mem})
	require.ErrorIs(t, err, queue.ErrLocked)
	require.ErrorIs(t, w.Put(queue.Record{}), queue.ErrIDEmpty)
	require.NoError(t, w.Put(queue.Record{ID: []byte("5"), Delete: true}), "an invalid record is not final")
	require.NoError(t, w.Close())

	w, err = Open(testDir, &Options{FS: mem})
	require.NoError(t, err)
	for _, cursor := range w.Cursors() {
		require.Equal(t, "c:99", string(cursor), "a record without cursor changes none")
	}
	require.NoError(t, w.Close())
	entries := int64(0)
	for i := range testLayout.Shards {
		r, err := queue.OpenReader(testLayout.Dir(testDir, i), &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		segments, err := r.Segments()
		require.NoError(t, err)
		for _, s := range segments {
			entries += s.Entries
		}
		require.NoError(t, r.Close())
	}
	require.EqualValues(t, 101, entries)
}

// TestOneShard: the directory is that of the only queue, with the files and bytes that
// queue.Writer writes.
func TestOneShard(t *testing.T) {
	one := newMem(t)
	clock := func() time.Time { return time.Unix(1, 0) }
	w, err := Open(testDir, &Options{FS: one, Now: clock})
	require.NoError(t, err)
	require.NoError(t, w.Put(queue.Record{ID: []byte("first")}))
	require.NoError(t, w.Close())
	alone := one.CrashClone(vfs.KeepAll) // the same queue
	w, err = Open(testDir, &Options{FS: one, Now: clock})
	require.NoError(t, err)
	q, err := queue.OpenWriter(testDir, &queue.WriterOptions{FS: alone, Now: clock})
	require.NoError(t, err)
	require.Equal(t, shard.Layout{Shards: 1}, w.Layout())
	for n := range 100 {
		r := queue.Record{ID: fmt.Append(nil, n), Document: fmt.Append(nil, n), Cursor: fmt.Append(nil, "c:", n)}
		require.NoError(t, w.Put(r))
		_, err := q.Put(r)
		require.NoError(t, err)
		switch n % 10 {
		case 3:
			require.NoError(t, errors.Join(w.Flush(), q.Flush()))
		case 7:
			require.NoError(t, errors.Join(w.Seal(), q.Seal()))
		}
	}
	require.Equal(t, "c:99", string(w.Cursors()[0]))
	require.Equal(t, "c:98", string(w.Resumable([]byte("c:98"))))
	require.NoError(t, errors.Join(w.Close(), q.Close()))
	require.ErrorIs(t, w.Put(queue.Record{ID: []byte("id")}), queue.ErrClosed)
	require.ErrorIs(t, w.Flush(), queue.ErrClosed)
	require.Equal(t, []queue.Address{q.End()}, w.Ends())
	names, err := alone.List(testDir)
	require.NoError(t, err)
	written, err := one.List(testDir)
	require.NoError(t, err)
	require.Equal(t, names, written)
	for _, name := range names {
		want, err := vfs.ReadFile(alone, testDir+"/"+name)
		require.NoError(t, err)
		got, err := vfs.ReadFile(one, testDir+"/"+name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, mem *vfs.Mem)
		layout  shard.Layout
		want    error
		message string
	}{
		"another layout": {
			func(t *testing.T, mem *vfs.Mem) { write(t, mem, 0, 1) },
			shard.Layout{Shards: 16, Seed: 5}, shard.ErrDiffers, "has 8 shards",
		},
		"several shards instead of one": {
			func(t *testing.T, mem *vfs.Mem) {
				w, err := queue.OpenWriter(testDir, &queue.WriterOptions{FS: mem})
				require.NoError(t, err)
				_, err = w.Append([]byte("id"), nil)
				require.NoError(t, err)
				require.NoError(t, w.Close())
			},
			testLayout, shard.ErrDiffers, "has one shard, with 0000000001.seg",
		},
		"one shard instead of several": {
			func(t *testing.T, mem *vfs.Mem) { write(t, mem, 0, 1) },
			shard.Layout{Shards: 1}, shard.ErrDiffers, "has 8 shards",
		},
		"shards not a power of two": {func(*testing.T, *vfs.Mem) {}, shard.Layout{Shards: 12}, nil, "power of two"},
		"too many shards":           {func(*testing.T, *vfs.Mem) {}, shard.Layout{Shards: 2 * MaxShards}, nil, "at most 1024"},
		"a damaged layout": {
			func(t *testing.T, mem *vfs.Mem) {
				write(t, mem, 0, 1)
				require.NoError(t, vfs.WriteFileAtomic(mem, testDir+"/LAYOUT", []byte("{}")))
			},
			shard.Layout{}, shard.ErrCorrupt, "restore the file",
		},
		"a shard that was removed": {
			func(t *testing.T, mem *vfs.Mem) {
				write(t, mem, 0, 100)
				require.NoError(t, mem.RemoveAll(testLayout.Dir(testDir, 3)))
			},
			shard.Layout{}, ErrIncomplete, "shard-0003 has no entries, but it had some",
		},
		"a checkpoint of a newer format": {
			func(t *testing.T, mem *vfs.Mem) {
				write(t, mem, 0, 1)
				require.NoError(t, writeFile(mem, testDir+"/CURSOR", map[string]int{"format": 2}))
			},
			shard.Layout{}, errNewerFormat, "later version",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := newMem(t)
			test.prepare(t, mem)
			for range 2 { // everything was released
				_, err := Open(testDir, &Options{FS: mem, Layout: test.layout})
				if test.want != nil {
					require.ErrorIs(t, err, test.want)
				}
				require.ErrorContains(t, err, test.message)
			}
		})
	}
}

// TestDamagedCheckpoint: the cursors of the shards are used, which are earlier ones.
func TestDamagedCheckpoint(t *testing.T) {
	valid := checkpoint{Format: fileFormat, Cursor: []byte("c:99"), Ends: make([]end, testLayout.Shards)}
	for name, content := range map[string][]byte{
		"empty":             {},
		"no checksum":       []byte("{\"format\":1}\n"),
		"wrong checksum":    []byte("{\"format\":1}\n00000000\n"),
		"not JSON":          sum("nothing\n"),
		"format 0":          sum("{}\n"),
		"unknown field":     sum("{\"format\":1,\"more\":1}\n"),
		"other shards":      encoded(t, checkpoint{Format: fileFormat, Ends: valid.Ends[1:]}),
		"long cursor":       encoded(t, checkpoint{Format: fileFormat, Ends: valid.Ends, Cursor: make([]byte, queue.MaxCursorBytes+1)}),
		"more than allowed": bytes.Repeat([]byte(" "), maxFileBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			mem := newMem(t)
			write(t, mem, 0, 100)
			require.NoError(t, vfs.WriteFileAtomic(mem, filepath.Join(testDir, checkpointName), content))
			_, err := readCheckpoint(mem, testDir, testLayout.Shards)
			require.ErrorIs(t, err, errDamaged)
			w, err := Open(testDir, &Options{FS: mem})
			require.NoError(t, err)
			last := 0
			for _, cursor := range w.Cursors() {
				require.NotEmpty(t, cursor)
				if string(cursor) == "c:99" {
					last++
				}
			}
			require.Equal(t, 1, last)
			require.NoError(t, w.Close())
		})
	}
}

func sum(line string) []byte { return fmt.Appendf([]byte(line), "%08x\n", checksum.Of([]byte(line))) }

func encoded(t *testing.T, c checkpoint) []byte {
	line, err := json.Marshal(c)
	require.NoError(t, err)
	return sum(string(line) + "\n")
}

// TestDictionaryIsReused: all shards use one dictionary, the next Writer uses it at once, and
// another one is trained after it was removed.
func TestDictionaryIsReused(t *testing.T) {
	mem := newMem(t)
	layout := shard.Layout{Shards: 2, Seed: 5}
	postings := jobs.New(1)
	fill := func(megabytes int) {
		w, err := Open(testDir, &Options{FS: mem, Layout: layout})
		require.NoError(t, err)
		for bytes, n := 0, 0; bytes < megabytes<<20; n++ {
			document := postings.Next()
			bytes += len(document)
			require.NoError(t, w.Put(queue.Record{ID: fmt.Append(nil, n), Document: document}))
		}
		require.NoError(t, w.Close())
	}
	fill(6) // segments with a dictionary follow at least 1 MiB in the shard
	content := readDictionary(mem, testDir, queue.DefaultCodec, discard)
	require.NotEmpty(t, content)
	require.Empty(t, readDictionary(mem, testDir, "zstd", discard), "another codec")
	fill(3)
	again := readDictionary(mem, testDir, queue.DefaultCodec, discard)
	require.Equal(t, content, again)
	for i := range layout.Shards {
		r, err := queue.OpenReader(layout.Dir(testDir, i), &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		infos, err := r.Segments()
		require.NoError(t, err)
		require.Equal(t, len(content), infos[len(infos)-1].DictionaryBytes)
		require.NoError(t, r.Close())
	}
	require.NoError(t, RemoveDictionary(mem, testDir))
	require.NoError(t, RemoveDictionary(mem, testDir), "it is gone")
	require.Empty(t, readDictionary(mem, testDir, queue.DefaultCodec, discard))
	require.NoError(t, vfs.WriteFileAtomic(mem, filepath.Join(testDir, dictionaryName), content))
	require.Empty(t, readDictionary(mem, testDir, queue.DefaultCodec, discard), "damaged")
	fill(6)
	require.NotEmpty(t, readDictionary(mem, testDir, queue.DefaultCodec, discard))
}

func TestOpenBlocksAreBounded(t *testing.T) {
	for shards := 2; shards <= MaxShards; shards *= 2 {
		require.LessOrEqual(t, shards*blockBytes(shards), openBlockBytes)
		require.LessOrEqual(t, blockBytes(shards), queue.DefaultBlockBytes)
	}
}

// TestFlushWaitsForAnotherFlush: entries that another goroutine is flushing are durable when
// Flush returns.
func TestFlushWaitsForAnotherFlush(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		gated := vfs.NewFault(newMem(t), func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncData {
				<-proceed
			}
			return nil
		})
		w, err := Open(testDir, &Options{FS: gated, Layout: testLayout})
		require.NoError(t, err)
		require.NoError(t, w.Put(queue.Record{ID: []byte("id")}))
		flushed := make(chan error, 2)
		for range 2 {
			go func() { flushed <- w.Flush() }()
			synctest.Wait()
		}
		select {
		case <-flushed:
			t.Fatal("Flush returned before the sync")
		default:
		}
		close(proceed)
		require.NoError(t, <-flushed)
		require.NoError(t, <-flushed)
		require.NoError(t, w.Close())
	})
}

// TestWriteErrorIsFinal: after a failure in one shard nothing is put into any.
func TestWriteErrorIsFinal(t *testing.T) {
	for _, layout := range []shard.Layout{{Shards: 1}, testLayout} {
		broken := vfs.NewFault(newMem(t), func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncData {
				return errCrash
			}
			return nil
		})
		w, err := Open(testDir, &Options{FS: broken, Layout: layout})
		require.NoError(t, err)
		require.NoError(t, w.Put(queue.Record{ID: []byte("id")}))
		require.ErrorIs(t, w.Flush(), errCrash)
		for i := range 20 {
			require.ErrorIs(t, w.Put(queue.Record{ID: fmt.Append(nil, i)}), errCrash)
		}
		require.ErrorIs(t, w.Flush(), errCrash)
		require.ErrorIs(t, w.Seal(), errCrash)
		require.ErrorIs(t, w.Close(), errCrash)
		require.ErrorIs(t, w.Close(), errCrash)
	}
}

// After a crash before the Flush of a transaction, no shard has entries of it. Entries after the
// Flush are kept as usual.
func TestTransaction(t *testing.T) {
	for _, layout := range []shard.Layout{{Shards: 1}, testLayout} {
		mem := newMem(t)
		put := func(w *Writer, first, last int) {
			for n := first; n < last; n++ {
				require.NoError(t, w.Put(queue.Record{ID: fmt.Append(nil, n), Document: make([]byte, 300)}))
			}
		}
		entries := func() (total int) {
			w, err := Open(testDir, &Options{FS: mem, Layout: layout})
			require.NoError(t, err)
			require.NoError(t, w.Close())
			for i := range layout.Shards {
				r, err := queue.OpenReader(layout.Dir(testDir, i), &queue.ReaderOptions{FS: mem})
				require.NoError(t, err)
				require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(queue.Entry) error { total++; return nil }))
				require.NoError(t, r.Close())
			}
			return total
		}
		w, err := Open(testDir, &Options{FS: mem, Layout: layout})
		require.NoError(t, err)
		require.NoError(t, w.Begin())
		put(w, 0, 100)
		require.NoError(t, w.Close())
		require.Zero(t, entries())

		w, err = Open(testDir, &Options{FS: mem, Layout: layout})
		require.NoError(t, err)
		require.NoError(t, w.Begin())
		put(w, 0, 3)
		require.NoError(t, w.Flush())
		put(w, 3, 100)
		require.NoError(t, w.Close())
		require.ErrorIs(t, w.Begin(), queue.ErrClosed)
		require.Equal(t, 100, entries())
	}
}
