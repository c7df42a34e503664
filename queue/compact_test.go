package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// model is the expected state of a queue: the newest entry of each id, and indexes that
// have stopped at some position.
type model struct {
	random  *rand.Rand
	now     time.Time
	newest  map[string]item
	stopped []follower
}

type follower struct {
	at    queue.Position
	index map[string]indexed
}

type indexed struct {
	address queue.Address
	expires time.Time
	place   queue.Place // of a generation up to the present one
}

// follow returns the index after the given number of further entries; -1: after all.
func (f *follower) follow(t *testing.T, r *queue.Reader, steps int) follower {
	next, err := f.tryFollow(r, steps)
	require.NoError(t, err)
	return next
}

func (f *follower) tryFollow(r *queue.Reader, steps int) (follower, error) {
	next := follower{f.at, maps.Clone(f.index)}
	errEnough := errors.New("enough")
	err := r.Scan(context.Background(), f.at, func(e queue.Entry) error {
		if steps == 0 {
			return errEnough
		}
		steps--
		next.at = e.Next
		delete(next.index, string(e.ID))
		if !e.Deleted {
			next.index[string(e.ID)] = indexed{e.Address, e.Expires, e.Place}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return next, err
}

func (m *model) write(t *testing.T, w *queue.Writer, count int) {
	for range count {
		it := item{id: fmt.Sprint("id", m.random.IntN(40))}
		switch m.random.IntN(8) {
		case 0:
			it.deleted = true
		case 1:
			it.expires = m.now.Add(time.Duration(m.random.IntN(20)-5) * time.Second).Truncate(time.Second)
			fallthrough
		default:
			it.document = string(randomBytes(m.random, m.random.IntN(200)))
		}
		it.put(t, w)
		m.newest[it.id] = it
		if m.random.IntN(20) == 0 {
			require.NoError(t, w.Flush())
		}
		if m.random.IntN(30) == 0 {
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Flush())
}

func (m *model) live(id string) bool {
	it, ok := m.newest[id]
	return ok && !it.deleted && (it.expires.IsZero() || m.now.Before(it.expires))
}

// requireIndex checks that an index at the end of the queue serves each live document,
// and nothing else.
func (m *model) requireIndex(t *testing.T, r *queue.Reader, f follower) {
	for id := range m.newest {
		require.NoError(t, m.checkID(t, r, f, id))
	}
}

// checkID checks the answer of an index for an id whose newest entry it has read. It
// returns the error of fetching a live document, which must not be that the document is
// gone.
func (m *model) checkID(t *testing.T, r *queue.Reader, f follower, id string) error {
	known, ok := f.index[id]
	if ok && !known.expires.IsZero() && !m.now.Before(known.expires) {
		ok = false
	}
	if !ok {
		require.False(t, m.live(id), "%s is not in the index", id)
		return nil
	}
	document, err := r.DocumentFor(nil, []byte(id), known.address)
	placed, _, placedErr := r.StoredFor(nil, queue.Wanted{ID: []byte(id), Address: known.address, Place: known.place}, 0)
	if placedErr == nil { // although the block's table may be damaged
		require.True(t, m.live(id), "%s is deleted", id)
		require.Equal(t, m.newest[id].document, string(placed))
	} else {
		require.Equal(t, fmt.Sprint(err), placedErr.Error())
	}
	var gone *queue.GoneError
	isGone := errors.As(err, &gone) && gone.Settled.Next.Compare(f.at.Next) <= 0
	switch {
	case !m.live(id):
		require.Error(t, err, "%s is deleted", id)
		if isGone {
			return nil
		}
	case err == nil:
		require.Equal(t, m.newest[id].document, string(document))
	default:
		require.False(t, isGone, "%s: %v", id, err)
	}
	return err
}

func TestCompactModel(t *testing.T) {
	for _, codec := range []string{"none", "s2"} {
		t.Run(codec, func(t *testing.T) {
			random := testseed.Rand(t)
			mem := newMem(t)
			m := &model{random: random, now: testStart, newest: map[string]item{}}
			m.stopped = []follower{{index: map[string]indexed{}}}
			opts := testOptions(mem)
			opts.Codec, opts.BlockBytes = codec, 1000
			w := openWriter(t, opts)
			r := openReader(t, mem)
			for round := range 60 {
				m.write(t, w, 1+random.IntN(150))
				m.now = m.now.Add(time.Second)
				m.stopped = append(m.stopped, m.stopped[random.IntN(len(m.stopped))])
				last := &m.stopped[len(m.stopped)-1]
				*last = last.follow(t, r, random.IntN(500))
				if round%7 == 6 {
					require.NoError(t, w.Close())
					w = openWriter(t, opts)
				}
				_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{
					FS: mem, MaxDead: 0.01 + random.Float64(), DeleteOriginals: random.IntN(2) == 0,
					DeleteAfter: time.Duration(random.IntN(3)) * time.Second, MemoryBytes: 1000 + random.Int64N(1<<16),
					Now: func() time.Time { return m.now },
				})
				require.NoError(t, err)
				for _, from := range m.stopped {
					m.requireIndex(t, r, from.follow(t, r, -1))
				}
				report := requireSound(t, mem)
				require.Empty(t, report.Missing)
			}
		})
	}
}

func TestCompactShrinks(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	var last []item
	for range 10 {
		last = nil
		for i := range 50 {
			it := item{id: fmt.Sprint(i), document: posting(i)}
			it.put(t, w)
			last = append(last, it)
		}
		require.NoError(t, w.Seal())
	}
	now := testStart.Add(time.Hour)
	var done int64
	compact := func(after time.Duration) maintain.CompactReport {
		before, all := done, int64(0)
		report, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{
			FS: mem, DeleteOriginals: true, DeleteAfter: after, Now: func() time.Time { return now },
			Progress: func(now, total int64) {
				require.GreaterOrEqual(t, now, done-before)
				require.LessOrEqual(t, now, total)
				done, all = before+now, total
			},
		})
		require.NoError(t, err)
		require.Equal(t, all, done-before, "progress ends with the total")
		return report
	}
	report := compact(time.Minute)
	require.Equal(t, report.BytesBefore, done)
	require.Equal(t, 9, report.Replaced)
	require.Equal(t, 1, report.Rewrites)
	require.Zero(t, report.Deleted, "the rewrite is too young")
	now = now.Add(time.Minute)
	rewritten := report.BytesAfter
	done = 0
	report = compact(time.Minute)
	require.Equal(t, rewritten, done, "the rewrite is verified")
	require.Zero(t, report.Rewrites, "nothing is left to do")
	require.Equal(t, 9, report.Deleted)
	require.Less(t, report.DeletedBytes, int64(1<<30))

	names, err := mem.List(queueDir)
	require.NoError(t, err)
	require.Contains(t, names, "0000000001-0000000009.0001.seg")
	require.Len(t, slices.DeleteFunc(names, func(n string) bool {
		return n == queue.HeadName || n == segment.LockName || n == segment.CompactLockName
	}), 2)
	r := openReader(t, mem)
	requireItems(t, r, last)
	_, err = r.Document(nil, queue.Address{Segment: 3, Block: segment.HeaderBytes})
	var gone *queue.GoneError
	require.ErrorAs(t, err, &gone)
	require.ErrorIs(t, err, queue.ErrUnavailable)
}

// TestCompactCrash stops a compaction before each of its operations and cuts the power:
// nothing is lost, and the next compaction completes the work.
func TestCompactCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	base := newMem(t)
	w := openWriter(t, testOptions(base))
	var last []item
	for range 3 {
		last = nil
		for i := range 20 {
			it := item{id: fmt.Sprint(i), document: posting(i)}
			it.put(t, w)
			last = append(last, it)
		}
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	compact := func(fsys vfs.FS) error {
		_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: fsys, DeleteOriginals: true})
		return err
	}
	for k := 1; ; k++ {
		mem := base.CrashClone(vfs.KeepAll)
		err := compact(crashAfter(mem, k))
		if err == nil {
			require.Greater(t, k, 8)
			return
		}
		require.ErrorIs(t, err, errCrash)
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			after := mem.CrashClone(way.Keep)
			requireLast := func(after vfs.FS) {
				r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: after})
				require.NoError(t, err)
				defer r.Close()
				index := follower{index: map[string]indexed{}}
				index = index.follow(t, r, -1)
				require.Len(t, index.index, len(last))
				for _, it := range last {
					document, err := r.DocumentFor(nil, []byte(it.id), index.index[it.id].address)
					require.NoError(t, err, "before operation %d, %s", k, way.Name)
					require.Equal(t, it.document, string(document))
				}
				requireSound(t, after)
			}
			requireLast(after)
			// A crash during the next compaction: it may rely only on durable results of
			// the first.
			require.NoError(t, compact(vfs.NewFault(after, func(op vfs.Op) error {
				for range crashtest.Share(1, 12) { // the names that survive are random
					for _, way := range crashtest.Ways(random) {
						if op.Kind.Writes() {
							tally.Case()
							requireLast(after.CrashClone(way.Keep))
						}
					}
				}
				return nil
			})))
			requireLast(after)
			names, err := after.List(queueDir)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{queue.HeadName, "0000000001-0000000002.0001.seg", "0000000003.seg", segment.LockName, segment.CompactLockName}, names)
			w, err := queue.OpenWriter(queueDir, testOptions(after))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
	}
}

// TestCompactDamage: for any damaged byte of a rewrite the answer is the right document
// or an error, and never that it is gone.
func TestCompactDamage(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	for range 2 {
		for i := range 3 {
			it := item{id: fmt.Sprint(i), document: posting(i)}
			it.put(t, w)
		}
		require.NoError(t, w.Seal())
	}
	keep := item{id: "1", document: posting(9)}
	keep.put(t, w)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: mem, MaxDead: 0.1, DeleteOriginals: true})
	require.NoError(t, err)
	const name = "0000000001-0000000002.0001.seg"
	content, err := vfs.ReadFile(mem, queueDir+"/"+name)
	require.NoError(t, err)
	items := scan(t, openReader(t, mem), queue.Position{})
	require.Len(t, items, 3)
	live := items[:2]
	for _, damage := range damages {
		for i := range content {
			damaged := damage.do(slices.Clone(content), i)
			r := openReader(t, memWith(t, map[string][]byte{name: damaged}))
			for _, it := range live {
				document, err := r.DocumentFor(nil, []byte(it.id), it.at)
				if err == nil {
					require.Equal(t, posting(int(it.id[0]-'0')), string(document), "byte %d %s", i, damage.name)
					continue
				}
				var gone *queue.GoneError
				require.False(t, errors.As(err, &gone), "byte %d %s: %v", i, damage.name, err)
			}
			r.Close()
		}
	}
}

// TestCompactDeletesOnly: segments with only deletes are rewritten when nothing is left
// to delete.
func TestCompactDeletesOnly(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	for _, deleted := range []bool{false, true} {
		for i := range 50 {
			(&item{id: fmt.Sprint(i), document: posting(i), deleted: deleted}).put(t, w)
		}
		require.NoError(t, w.Seal())
	}
	(&item{id: "last", document: "document"}).put(t, w)
	require.NoError(t, w.Close())
	compact := func() maintain.CompactReport {
		report, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: mem, DeleteOriginals: true})
		require.NoError(t, err)
		return report
	}
	require.Equal(t, 1, compact().Replaced)
	require.Len(t, scan(t, openReader(t, mem), queue.Position{}), 51, "the deletes were still needed")
	report := compact()
	require.Equal(t, 1, report.Replaced)
	require.Less(t, report.BytesAfter, report.BytesBefore)
	require.Len(t, scan(t, openReader(t, mem), queue.Position{}), 1)
	require.Zero(t, compact().Replaced)
	requireSound(t, mem)
}

// TestDropReplaced: a removed file does not stay open for fetches, and its documents come
// from the rewrite.
func TestDropReplaced(t *testing.T) {
	mem := newMem(t)
	opts := testOptions(mem)
	opts.Codec, opts.SegmentBytes, opts.DictionaryBytes = "s2", 20_000, eraseDictionaryBytes
	w := openWriter(t, opts)
	var items, live []item
	for i := range 300 {
		it := item{id: fmt.Sprint(i), document: posting(i)}
		if i >= 200 {
			it.id = fmt.Sprint(2 * (i - 200))
		}
		it.put(t, w)
		if items = append(items, it); i >= 200 || i%2 == 1 {
			live = append(live, it)
		}
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	r := openReader(t, mem)
	requireDocuments(t, r, items)
	_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: mem, MaxDead: 0.001, DeleteOriginals: true})
	require.NoError(t, err)
	old := items[0]
	_, err = r.Document(nil, old.at)
	require.NoError(t, err, "the removed file is still open")
	require.NoError(t, r.DropReplaced())
	_, err = r.Document(nil, old.at)
	var gone *queue.GoneError
	require.ErrorAs(t, err, &gone)
	requireDocuments(t, r, live)

	// A reader without cached files finds the dictionaries of rewrites, too.
	fresh := openReader(t, mem)
	infos, err := fresh.Segments()
	require.NoError(t, err)
	found := 0
	for _, info := range infos {
		if info.Generation > 0 && info.DictionaryBytes > 0 {
			content, err := fresh.Dictionary(nil, info.Dictionary)
			require.NoError(t, err)
			require.Len(t, content, info.DictionaryBytes)
			found++
		}
	}
	require.Positive(t, found)
}
