package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTailWhileWriting follows a queue that is being written, with small blocks and
// segments.
func TestTailWhileWriting(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.BlockBytes, opts.SegmentBytes = "s2", 600, 4000
	w := queuetest.OpenWriter(t, opts)
	const count = 2000
	written := make(chan []queuetest.Item, 1)
	go func() {
		var items []queuetest.Item
		for i := range count {
			it := queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)[:100]}
			var err error
			if it.At, err = w.Append([]byte(it.ID), []byte(it.Document)); err != nil {
				break
			}
			items = append(items, it)
			if i%37 == 0 && w.Flush() != nil {
				break
			}
		}
		if err := w.Close(); err != nil {
			items = nil
		}
		written <- items
	}()
	r := queuetest.OpenReader(t, mem)
	var got []queuetest.Item
	var document []byte
	err := r.Tail(t.Context(), queue.Position{}, func(e queue.Entry) error {
		assert.False(t, e.Appended.IsZero())
		var err error
		if document, err = r.DocumentFor(document[:0], e.ID, e.Address); err != nil {
			return err
		}
		got = append(got, queuetest.Item{ID: string(e.ID), Document: string(document), At: e.Address, Next: e.Next})
		if len(got) == count {
			return errDone
		}
		return nil
	})
	require.ErrorIs(t, err, errDone)
	want := <-written
	require.Len(t, got, len(want))
	for i := range want {
		want[i].Next = got[i].Next
	}
	require.Equal(t, want, got)
}

var errDone = errors.New("done")

// TestTailFromEveryPosition: a Tail from the Next of an entry delivers exactly the
// remaining entries.
func TestTailFromEveryPosition(t *testing.T) {
	for _, seal := range []bool{true, false} {
		files, _ := queuetest.SmallQueue(t, "none", seal)
		r := queuetest.OpenReader(t, queuetest.MemWith(t, files))
		all := queuetest.Scan(t, r, queue.Position{})
		for i, it := range all {
			rest := queuetest.Scan(t, r, it.Next)
			require.Equal(t, all[i+1:], append([]queuetest.Item{}, rest...), "from entry %d", i)
		}
		assert.Equal(t, all[len(all)-1].Next, r.End())
		assert.Equal(t, all, queuetest.Scan(t, r, queue.Position{Queue: all[0].Next.Queue}))
	}
}

// TestMoreAndCaughtUp: More is false exactly if no entry is pending, and then OnCaughtUp
// is called once.
func TestMoreAndCaughtUp(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := queuetest.NewMem(t)
		opts := queuetest.Options(mem)
		opts.BlockBytes = 1
		w := queuetest.OpenWriter(t, opts)
		var events []string
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem, OnCaughtUp: func(p queue.Position) {
			events = append(events, fmt.Sprint("caught up at segment ", p.Next.Segment))
		}})
		require.NoError(t, err)
		defer r.Close()
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- r.Tail(ctx, queue.Position{}, func(e queue.Entry) error {
				events = append(events, fmt.Sprintf("%s more=%t", e.ID, e.More))
				return nil
			})
		}()
		expect := func(want ...string) {
			time.Sleep(3 * queue.DefaultPollInterval)
			synctest.Wait()
			require.Equal(t, want, events)
			events = nil
		}
		add := func(ids ...string) {
			for _, id := range ids {
				_, err := w.Append([]byte(id), nil)
				require.NoError(t, err)
			}
		}
		expect("caught up at segment 0")
		add("a", "b", "c")
		time.Sleep(time.Second)
		require.Empty(t, events, "entries that are not flushed")
		require.NoError(t, w.Flush())
		expect("a more=true", "b more=true", "c more=false", "caught up at segment 1")
		require.NoError(t, w.Seal())
		expect([]string(nil)...)
		add("d")
		require.NoError(t, w.Seal())
		add("e", "f")
		require.NoError(t, w.Seal())
		expect("d more=true", "e more=true", "f more=false", "caught up at segment 3")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestTailEnds(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	mem := queuetest.MemWith(t, files)
	t.Run("by the function", func(t *testing.T) {
		var calls int
		err := queuetest.OpenReader(t, mem).Tail(t.Context(), queue.Position{}, func(queue.Entry) error { calls++; return errDone })
		require.ErrorIs(t, err, errDone)
		require.Equal(t, 1, calls)
	})
	t.Run("by its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls int
		err := queuetest.OpenReader(t, mem).Tail(ctx, queue.Position{}, func(queue.Entry) error {
			if calls++; calls == len(items) {
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("by Close", func(t *testing.T) {
		r := queuetest.OpenReader(t, mem)
		var calls int
		err := r.Tail(t.Context(), queue.Position{}, func(queue.Entry) error {
			if calls++; calls == len(items) {
				r.Close()
			}
			return nil
		})
		require.ErrorIs(t, err, queue.ErrClosed)
	})
}

// TestTailContinuesAfterDamageIsReplaced: entries before the damage are delivered, and
// the rest after the file has been replaced.
func TestTailContinuesAfterDamageIsReplaced(t *testing.T) {
	for _, seal := range []bool{true, false} {
		files, items := queuetest.SmallQueue(t, "none", seal)
		name := "0000000002.open"
		if seal {
			name = "0000000002.seg"
		}
		good := files[name]
		damaged := bytes.Clone(good)
		// The last block's table; in the open file a commit mark follows it.
		damaged[items[7].At.Block+9] ^= 1
		mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": files["0000000001.seg"], name: damaged})
		r := queuetest.OpenReader(t, mem)
		before, err := queuetest.TryScan(r, queue.Position{})
		var corruption *queue.CorruptionError
		require.ErrorAs(t, err, &corruption)
		assert.EqualValues(t, 2, corruption.Segment)
		assert.EqualValues(t, items[7].At.Block, corruption.Offset)
		require.Less(t, len(before), len(items))
		require.Greater(t, len(before), 5)

		require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/"+name, good))
		rest := queuetest.Scan(t, r, before[len(before)-1].Next)
		require.Len(t, rest, len(items)-len(before))
		assert.Equal(t, items[len(before)].At, rest[0].At)
	}
}

// TestDamagedFooterIsNoticed: a damaged footer differs from a missing one only in that
// the file does not change while later segments exist.
func TestDamagedFooterIsNoticed(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	damaged := bytes.Clone(files["0000000001.seg"])
	damaged[len(damaged)-1] ^= 1
	for name, content := range map[string][]byte{"flipped": damaged, "cut": damaged[:20]} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": content})
				r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
				require.NoError(t, err)
				defer r.Close()
				ended := make(chan error, 1)
				var got int
				go func() {
					ended <- r.Tail(t.Context(), queue.Position{}, func(queue.Entry) error { got++; return nil })
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Empty(t, ended, "the footer may not have arrived")
				require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000002.seg", files["0000000002.seg"]))
				require.ErrorIs(t, <-ended, queue.ErrCorrupt)
				if name == "flipped" {
					assert.Equal(t, 3, got, "entries before a commit mark")
				}
				_, err = queuetest.TryScan(r, queue.Position{})
				require.ErrorIs(t, err, queue.ErrUnavailable)

				require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000001.seg", files["0000000001.seg"]))
				queuetest.RequireItems(t, r, items)
			})
		})
	}
}

// source is a queue that is being written and copied.
type source struct {
	t       *testing.T
	mem     *vfs.Mem
	w       *queue.Writer
	items   []queuetest.Item
	flushed int
}

func newSource(t *testing.T) *source {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes, opts.SegmentBytes = 500, 3000
	return &source{t: t, mem: mem, w: queuetest.OpenWriter(t, opts)}
}

func (s *source) append(count int) {
	for range count {
		it := queuetest.Item{ID: fmt.Sprint(len(s.items)), Document: queuetest.Posting(len(s.items))[:150]}
		it.Put(s.t, s.w)
		s.items = append(s.items, it)
	}
	settle(s.t, s.w)
}

func (s *source) files() map[string][]byte {
	names, err := s.mem.List(queuetest.Dir)
	require.NoError(s.t, err)
	files := map[string][]byte{}
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); ok {
			files[name], err = vfs.ReadFile(s.mem, queuetest.Dir+"/"+name)
			require.NoError(s.t, err)
		}
	}
	return files
}

// TestTailDuringCopy follows a replica whose files arrive in the ways of rsync,
// interrupted at any byte: whole files renamed, appended to, and written in place. At
// each moment the replica has a prefix of the flushed entries and no error, and in the
// end all of them.
func TestTailDuringCopy(t *testing.T) {
	for _, mode := range []string{"rename", "append", "in place", "any"} {
		t.Run(mode, func(t *testing.T) {
			random := testseed.Rand(t)
			s := newSource(t)
			replica := queuetest.NewMem(t)
			r := queuetest.OpenReader(t, replica)
			tail := queue.NewLook(r, queue.Position{})
			defer tail.Close()
			var got []queuetest.Item
			look := func() {
				known := len(got)
				for {
					found, err := tail.Next(t.Context(), func(e queue.Entry) error {
						got = append(got, queuetest.Item{ID: string(e.ID), At: e.Address})
						return nil
					})
					require.NoError(t, err)
					if !found {
						break
					}
				}
				require.LessOrEqual(t, len(got), s.flushed, "the replica is ahead of what is durable")
				for i := known; i < len(got); i++ {
					require.Equal(t, s.items[i].ID, got[i].ID)
					require.Equal(t, s.items[i].At, got[i].At)
				}
			}
			for range 100 {
				s.append(random.IntN(8))
				switch random.IntN(4) {
				case 0:
					require.NoError(t, s.w.Flush())
					s.flushed = len(s.items)
				case 1:
					require.NoError(t, s.w.Seal())
					s.flushed = len(s.items)
				}
				s.flushed = max(s.flushed, sealedItems(s))
				for name, content := range s.files() { // in any order
					if random.IntN(3) == 0 {
						continue
					}
					m := mode
					if m == "any" {
						m = []string{"rename", "append", "in place"}[random.IntN(3)]
					}
					copyFile(t, replica, name, content, m, random.IntN(len(content)+1), random.IntN(3) > 0)
					look()
				}
			}
			require.NoError(t, s.w.Close())
			s.flushed = len(s.items)
			for name, content := range s.files() {
				copyFile(t, replica, name, content, "in place", 0, true)
				look()
			}
			look()
			require.Len(t, got, len(s.items))
			queuetest.RequireItems(t, r, s.items)
		})
	}
}

// sealedItems returns the number of items in segments that were sealed automatically.
func sealedItems(s *source) (n int) {
	l, err := segment.List(s.mem, queuetest.Dir)
	require.NoError(s.t, err)
	for n < len(s.items) && l.Sealed[s.items[n].At.Segment] {
		n++
	}
	return n
}

// copyFile copies the file to the replica, up to the cut unless whole is true.
func copyFile(t *testing.T, replica vfs.FS, name string, content []byte, mode string, cut int, whole bool) {
	path := queuetest.Dir + "/" + name
	if whole {
		cut = len(content)
	}
	info, err := replica.Stat(path)
	exists := err == nil
	switch {
	case mode == "rename":
		if whole { // otherwise it keeps its temporary name
			require.NoError(t, vfs.WriteFileAtomic(replica, path, content))
		}
		return
	case !exists:
		f, err := replica.Create(path)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		info.Size = 0
	}
	f, err := replica.OpenAppend(path)
	require.NoError(t, err)
	defer f.Close()
	from := int(info.Size)
	if mode == "in place" {
		from = min(from, cut)
		require.NoError(t, f.Truncate(int64(from)))
	}
	if from < cut {
		_, err = f.Write(content[from:cut])
		require.NoError(t, err)
	}
}

// TestMissingSegmentIsWaitedFor: Tail does not skip to a later segment.
func TestMissingSegmentIsWaitedFor(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	mem := queuetest.MemWith(t, map[string][]byte{"0000000002.seg": files["0000000002.seg"]})
	r := queuetest.OpenReader(t, mem)
	got, err := queuetest.TryScan(r, queue.Position{})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "segment 1 is missing")
	require.Empty(t, got)
	assert.EqualValues(t, 2, r.End().Next.Segment)
	require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000001.seg", files["0000000001.seg"]))
	queuetest.RequireItems(t, r, items)
}

// TestSegmentSealedBetweenTwoOpens: the open file gets its final name right after the
// reader has found no file of that name.
func TestSegmentSealedBetweenTwoOpens(t *testing.T) {
	for name, read := range map[string]func(r *queue.Reader, fsys vfs.FS, items []queuetest.Item){
		"scan": func(r *queue.Reader, _ vfs.FS, items []queuetest.Item) {
			require.Len(t, queuetest.Scan(t, r, queue.Position{}), len(items))
		},
		"document": func(r *queue.Reader, _ vfs.FS, items []queuetest.Item) { queuetest.RequireDocuments(t, r, items) },
		"end":      func(r *queue.Reader, _ vfs.FS, items []queuetest.Item) { require.NotZero(t, r.End()) },
		"segments": func(r *queue.Reader, _ vfs.FS, _ []queuetest.Item) {
			infos, err := r.Segments()
			require.NoError(t, err)
			require.Len(t, infos, 1)
		},
		"check": func(_ *queue.Reader, fsys vfs.FS, items []queuetest.Item) {
			report, err := maintain.Check(t.Context(), queuetest.Dir, &maintain.CheckOptions{FS: fsys})
			require.NoError(t, err)
			require.EqualValues(t, len(items), report.Entries)
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := queuetest.NewMem(t)
			w := queuetest.OpenWriter(t, queuetest.Options(mem))
			it := queuetest.Item{ID: "id", Document: "document"}
			it.Put(t, w)
			require.NoError(t, w.Flush())
			fsys := vfs.NewFault(mem, func(op vfs.Op) error {
				if (op.Kind == vfs.OpStat || op.Kind == vfs.OpOpen) && strings.HasSuffix(op.Name, segment.OpenSuffix) {
					assert.NoError(t, w.Seal())
				}
				return nil
			})
			r := queuetest.OpenReader(t, fsys)
			read(r, fsys, []queuetest.Item{it})
		})
	}
}

// TestEmptyDirectory: an empty directory gives no entries and no error.
func TestEmptyDirectory(t *testing.T) {
	r := queuetest.OpenReader(t, queuetest.NewMem(t))
	assert.Equal(t, queue.Position{}, r.End())
	assert.Empty(t, queuetest.Scan(t, r, queue.Position{}))
	infos, err := r.Segments()
	require.NoError(t, err)
	assert.Empty(t, infos)
	_, err = r.Document(nil, queue.Address{Segment: 1, Block: 128, Index: 0})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	_, err = r.Document(nil, queue.Address{})
	require.ErrorIs(t, err, queue.ErrUnavailable)
	_, err = r.DocumentFor(nil, nil, queue.Address{Segment: 1, Block: 128, Index: 0})
	require.ErrorIs(t, err, queue.ErrIDEmpty)
}

// TestBlocksBeforeDamageAreDelivered: blocks between the last mark that was read and
// damage are delivered, because a later mark commits them.
func TestBlocksBeforeDamageAreDelivered(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes = 1
	w := queuetest.OpenWriter(t, opts)
	var items []queuetest.Item
	for i := range 4 {
		it := queuetest.Item{ID: fmt.Sprint(i), Document: "document"}
		it.Put(t, w)
		items = append(items, it)
	}
	require.NoError(t, w.Flush())
	content, err := vfs.ReadFile(mem, segment.Path(queuetest.Dir, 1, segment.OpenSuffix))
	require.NoError(t, err)
	content[items[2].At.Block+4] = 9
	r := queuetest.OpenReader(t, queuetest.MemWith(t, map[string][]byte{"0000000001.open": content}))
	got, err := queuetest.TryScan(r, queue.Position{})
	require.ErrorIs(t, err, queue.ErrCorrupt)
	require.Len(t, got, 2)
}
