package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// model is what a queue ought to hold: the newest version of each id, and every
// position that somebody may have stopped at, with what he knew there.
type model struct {
	random  *rand.Rand
	now     time.Time
	newest  map[string]item
	stopped []follower
}

type follower struct {
	at    Position
	index map[string]indexed
}

type indexed struct {
	address Address
	expires time.Time
}

// follow reads on from a place as an index does.
func (f *follower) follow(t *testing.T, r *Reader, steps int) follower {
	next := follower{f.at, maps.Clone(f.index)}
	errEnough := errors.New("enough")
	err := r.Scan(context.Background(), f.at, func(e Entry) error {
		if steps == 0 {
			return errEnough
		}
		steps--
		next.at = e.Next
		delete(next.index, string(e.ID))
		if !e.Deleted {
			next.index[string(e.ID)] = indexed{e.Address, e.Expires}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		require.NoError(t, err)
	}
	return next
}

func (m *model) write(t *testing.T, w *Writer, count int) {
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

// requireIndex checks that whoever has read to the end serves what is live and
// nothing else.
func (m *model) requireIndex(t *testing.T, r *Reader, f follower) {
	for id := range m.newest {
		known, ok := f.index[id]
		if ok && !known.expires.IsZero() && !m.now.Before(known.expires) {
			ok = false
		}
		if !ok {
			require.False(t, m.live(id), "%s is not in the index", id)
			continue
		}
		document, err := r.DocumentFor(nil, []byte(id), known.address)
		if m.live(id) {
			require.NoError(t, err, id)
			require.Equal(t, m.newest[id].document, string(document))
			continue
		}
		var gone *GoneError
		require.ErrorAs(t, err, &gone, "%s is deleted", id)
		require.LessOrEqual(t, gone.Settled.Next.Compare(f.at.Next), 0)
	}
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
				_, err := Compact(context.Background(), queueDir, &CompactOptions{
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

// TestCompactPartialReplica compacts a random queue in batches of random size. Replicas
// that have copied only some of the files, but one for each segment, serve the same
// documents as the source: no deleted document, and each live one. They are looked at
// after each rewrite.
func TestCompactPartialReplica(t *testing.T) {
	random := testseed.Rand(t)
	mem := newMem(t)
	m := &model{random: random, now: testStart, newest: map[string]item{}}
	opts := testOptions(mem)
	opts.BlockBytes = 1000
	w := openWriter(t, opts)
	replicas := []*replica{newReplica(t, random), newReplica(t, random), newReplica(t, random)}
	lookAtReplicas := func() {
		for _, r := range append(replicas, newReplica(t, random)) {
			r.copySome(t, random, mem)
			m.requireIndex(t, r.reader, r.index.follow(t, r.reader, -1))
			requireCache(t, &r.reader.files)
			r.index = r.index.follow(t, r.reader, random.IntN(300))
		}
	}
	for range 16 {
		for range 2 + random.IntN(8) {
			m.write(t, w, 1+random.IntN(30))
			require.NoError(t, w.Seal())
		}
		m.now = m.now.Add(time.Second)
		renamed := false
		observed := vfs.NewFault(mem, func(op vfs.Op) error {
			if renamed { // a rewrite has its name
				lookAtReplicas()
			}
			renamed = op.Kind == vfs.OpRename
			return nil
		})
		_, err := Compact(context.Background(), queueDir, &CompactOptions{
			FS: observed, MaxDead: 0.01 + 0.3*random.Float64(), DeleteOriginals: random.IntN(2) == 0,
			MemoryBytes: 100 + random.Int64N(1<<12), Now: func() time.Time { return m.now },
		})
		require.NoError(t, err)
		lookAtReplicas()
	}
}

// replica is a copy of a queue under way, and an index that follows it.
type replica struct {
	mem    *vfs.Mem
	reader *Reader
	index  follower
}

func newReplica(t *testing.T, random *rand.Rand) *replica {
	mem := newMem(t)
	r := openReader(t, mem)
	r.files.limit = 1 + random.IntN(20)
	return &replica{mem, r, follower{index: map[string]indexed{}}}
}

// copySome copies some of the source's files, and what is missing of each segment.
// At times it then removes what the source no longer has.
func (r *replica) copySome(t *testing.T, random *rand.Rand, source *vfs.Mem) {
	names, err := source.List(queueDir)
	require.NoError(t, err)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	some, covered := random.IntN(len(names)+1), map[SegmentID]bool{}
	for i, name := range names {
		f, ok := ParseFileName(name)
		if !ok {
			continue
		}
		_, err := r.mem.Stat(queueDir + "/" + name)
		there := err == nil
		wanted := i < some
		for n := f.First; n <= f.Last; n++ {
			wanted = wanted || !there && !covered[n]
		}
		if wanted {
			content, err := vfs.ReadFile(source, queueDir+"/"+name)
			require.NoError(t, err)
			require.NoError(t, vfs.WriteFileAtomic(r.mem, queueDir+"/"+name, content))
		}
		for n := f.First; n <= f.Last && (wanted || there); n++ {
			covered[n] = true
		}
	}
	if random.IntN(3) > 0 {
		return
	}
	copied, err := r.mem.List(queueDir)
	require.NoError(t, err)
	for _, name := range copied {
		if !slices.Contains(names, name) {
			require.NoError(t, r.mem.Remove(queueDir+"/"+name))
		}
	}
}

// TestReplicaServesDeletedDocument: a compaction in two batches rewrites the segment of a
// document, and then that of its delete. The delete must stay: a replica may have the
// second rewrite and, of the first segment, the original.
func TestReplicaServesDeletedDocument(t *testing.T) {
	for _, memory := range []int64{1, 1 << 20} { // two batches; one
		mem := newMem(t)
		w := openWriter(t, testOptions(mem))
		put := func(items ...item) {
			for _, it := range items {
				it.put(t, w)
			}
			require.NoError(t, w.Seal())
		}
		put(item{id: "deleted", document: "document"}, item{id: "overwritten", document: "old"})
		put(item{id: "kept", document: "document"})
		put(item{id: "deleted", deleted: true}, item{id: "overwritten", document: "newer"}, item{id: "overwritten", document: "newest"})
		put(item{id: "last", document: "document"})
		_, err := Compact(context.Background(), queueDir, &CompactOptions{FS: mem, MaxDead: 0.01, MemoryBytes: memory})
		require.NoError(t, err)
		require.NoError(t, mem.Remove(queueDir+"/0000000001-0000000001.0001.seg"), "not copied yet")
		index := follower{index: map[string]indexed{}}
		index = index.follow(t, openReader(t, mem), -1)
		require.NotContains(t, index.index, "deleted")
	}
}

// TestDamagedRewriteDoesNotBringDeletesBack: the source has removed a deleted document
// with one rewrite and its delete with another. A replica that still has the original
// file, and of the first rewrite only a damaged copy, must not read the original.
func TestDamagedRewriteDoesNotBringDeletesBack(t *testing.T) {
	const rewrite = queueDir + "/0000000001-0000000001.0001.seg"
	for name, damage := range map[string]func(t *testing.T, replica *vfs.Mem){
		"set aside": func(t *testing.T, replica *vfs.Mem) {
			require.NoError(t, replica.Rename(rewrite, rewrite+AsideSuffix))
		},
		"damaged": func(t *testing.T, replica *vfs.Mem) {
			content, err := vfs.ReadFile(replica, rewrite)
			require.NoError(t, err)
			content[headerBytes/2] ^= 1
			require.NoError(t, vfs.WriteFileAtomic(replica, rewrite, content))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := newMem(t)
			w := openWriter(t, testOptions(mem))
			put := func(items ...item) {
				for _, it := range items {
					it.put(t, w)
				}
				require.NoError(t, w.Seal())
			}
			put(item{id: "deleted", document: "document"}, item{id: "kept", document: "document"})
			put(item{id: "between", document: "document"})
			put(item{id: "deleted", deleted: true}, item{id: "overwritten", document: "old"})
			put(item{id: "overwritten", document: "newest"})
			original, err := vfs.ReadFile(mem, queueDir+"/0000000001.seg")
			require.NoError(t, err)
			now := testStart
			for range 4 {
				now = now.Add(time.Hour)
				_, err := Compact(context.Background(), queueDir, &CompactOptions{
					FS: mem, MaxDead: 0.01, MemoryBytes: 1, DeleteOriginals: true, Now: func() time.Time { return now },
				})
				require.NoError(t, err)
			}
			require.NoError(t, vfs.WriteFileAtomic(mem, queueDir+"/0000000001.seg", original))
			damage(t, mem)
			var corruption *CorruptionError
			err = openReader(t, mem).Scan(context.Background(), Position{}, func(e Entry) error {
				require.NotEqual(t, "deleted", string(e.ID))
				return nil
			})
			require.ErrorAs(t, err, &corruption)
			require.Contains(t, corruption.Path, rewrite)
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
	compact := func(after time.Duration) CompactReport {
		before, all := done, int64(0)
		report, err := Compact(context.Background(), queueDir, &CompactOptions{
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
	require.Len(t, slices.DeleteFunc(names, func(n string) bool { return n == HeadName || n == lockName || n == compactLockName }), 2)
	r := openReader(t, mem)
	requireItems(t, r, last)
	_, err = r.Document(nil, Address{Segment: 3, Block: headerBytes})
	var gone *GoneError
	require.ErrorAs(t, err, &gone)
	require.ErrorIs(t, err, ErrUnavailable)
}

// TestCompactCrash stops a compaction before each of its operations and cuts the
// power: nothing is lost, and the next one ends what was begun.
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
		_, err := Compact(context.Background(), queueDir, &CompactOptions{FS: fsys, DeleteOriginals: true})
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
				r, err := OpenReader(queueDir, &ReaderOptions{FS: after})
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
			// And while the next one is under way: it may rely on nothing that the one
			// before has not made durable.
			require.NoError(t, compact(vfs.NewFault(after, func(op vfs.Op) error {
				for range crashtest.Share(1, 12) { // which names a disk keeps of several is chance
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
			require.ElementsMatch(t, []string{HeadName, "0000000001-0000000002.0001.seg", "0000000003.seg", lockName, compactLockName}, names)
			w, err := OpenWriter(queueDir, testOptions(after))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
	}
}

// TestCompactDamage: whatever byte of a rewrite is wrong, the answer is the
// right document or an error, and never that it is gone.
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
	_, err := Compact(context.Background(), queueDir, &CompactOptions{FS: mem, MaxDead: 0.1, DeleteOriginals: true})
	require.NoError(t, err)
	const name = "0000000001-0000000002.0001.seg"
	content, err := vfs.ReadFile(mem, queueDir+"/"+name)
	require.NoError(t, err)
	items := scan(t, openReader(t, mem), Position{})
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
				var gone *GoneError
				require.False(t, errors.As(err, &gone), "byte %d %s: %v", i, damage.name, err)
			}
			r.Close()
		}
	}
}

func TestPlanRewrites(t *testing.T) {
	of := func(n SegmentID, live, stored int64) part {
		return part{rewriteRun: rewriteRun{n, n, 0}, live: live, stored: stored}
	}
	names := func(parts ...part) (names []string) {
		for _, run := range planRewrites(parts, 0.5, 100) {
			names = append(names, fmt.Sprintf("%d-%d.%d", run.first(), run.last(), run.generation()))
		}
		return names
	}
	require.Empty(t, names(of(1, 50, 100), of(2, 0, 0)), "no more dead than allowed")
	require.Equal(t, []string{"1-2.1", "4-4.1"}, names(of(1, 10, 100), of(2, 10, 100), of(3, 90, 100), of(4, 10, 100)))
	require.Equal(t, []string{"1-1.1", "2-3.1"}, names(of(1, 90, 300), of(2, 20, 100), of(3, 80, 300)), "at most 100 live")
	require.Equal(t, []string{"1-1.1", "3-3.1"}, names(of(1, 1, 9), of(3, 1, 9)), "with a hole")
	rewritten, other := of(2, 1, 9), of(3, 1, 9)
	rewritten.generation, other.codec = 4, "s2"
	require.Equal(t, []string{"1-2.5", "3-3.1"}, names(of(1, 1, 9), rewritten, other))
	rewritten.generation = maxGeneration
	require.Equal(t, []string{"1-1.1"}, names(of(1, 1, 9), rewritten))

	newest := of(2, 1, 9)
	newest.newest = true
	require.Equal(t, []string{"1-1.1"}, names(of(1, 1, 9), newest), "the newest is left alone")
	newest.erase = true
	require.Equal(t, []string{"2-2.1"}, names(of(1, 9, 9), newest), "unless something in it must go")

	small := func(n SegmentID, live int64) part {
		p := of(n, live, live)
		p.generation = uint32(n)
		return p
	}
	require.Empty(t, names(small(1, 10), small(2, 10), small(3, 10), of(4, 10, 10)), "too few")
	require.Equal(t, []string{"1-4.5", "5-8.9"}, names(small(1, 25), small(2, 25), small(3, 25), small(4, 25),
		small(5, 10), small(6, 10), small(7, 10), small(8, 10), small(9, 26)))
	require.Empty(t, names(small(1, 10), small(2, 10), of(3, 9, 9), small(4, 10), small(5, 10)), "not side by side")
}

// TestPlanTaints: a dictionary must go that was made of what must go, and what was
// made of the documents that are encoded anew for that.
func TestPlanTaints(t *testing.T) {
	of := func(n SegmentID, sampled rewriteRun) part {
		return part{rewriteRun: rewriteRun{n, n, 0}, encoding: encoding{dictionary: DictionaryHash{1}}, sampled: sampled}
	}
	tainted := func(parts ...part) (found []SegmentID) {
		markTainted(parts)
		for _, p := range parts {
			require.Equal(t, p.tainted, p.dictionary == DictionaryHash{})
			if p.tainted {
				found = append(found, p.first)
			}
		}
		return found
	}
	dead := of(2, rewriteRun{1, 1, 0})
	dead.erase = true
	clean, unknown := of(3, rewriteRun{1, 1, 0}), of(4, rewriteRun{})
	require.Empty(t, tainted(of(1, rewriteRun{1, 1, 0}), clean))
	require.Equal(t, []SegmentID{4}, tainted(clean, unknown))
	require.Empty(t, tainted(dead, clean))
	require.Equal(t, []SegmentID{5, 7}, tainted(dead, clean, of(5, rewriteRun{2, 3, 0}), of(7, rewriteRun{5, 6, 0})))
	rewritten := of(8, rewriteRun{8, 8, 3})
	rewritten.generation = 3
	require.Empty(t, tainted(rewritten), "its own documents")
	rewritten.generation = 4
	require.Equal(t, []SegmentID{8}, tainted(rewritten), "some of them have been left out")
}

// TestCompactDeletesOnly: segments that hold nothing but deletes are rewritten when
// these have nothing left to delete.
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
	compact := func() CompactReport {
		report, err := Compact(context.Background(), queueDir, &CompactOptions{FS: mem, DeleteOriginals: true})
		require.NoError(t, err)
		return report
	}
	require.Equal(t, 1, compact().Replaced)
	require.Len(t, scan(t, openReader(t, mem), Position{}), 51, "the deletes were needed as yet")
	report := compact()
	require.Equal(t, 1, report.Replaced)
	require.Less(t, report.BytesAfter, report.BytesBefore)
	require.Len(t, scan(t, openReader(t, mem), Position{}), 1)
	require.Zero(t, compact().Replaced)
	requireSound(t, mem)
}

// TestDropReplaced: a file that was removed is not kept open for those who fetch
// from it, and what it held comes from the rewrite.
func TestDropReplaced(t *testing.T) {
	mem := newMem(t)
	opts := testOptions(mem)
	opts.Codec, opts.SegmentBytes, opts.dictionaryBytes = "s2", 20_000, eraseDictionaryBytes
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
	_, err := Compact(context.Background(), queueDir, &CompactOptions{FS: mem, MaxDead: 0.001, DeleteOriginals: true})
	require.NoError(t, err)
	old := items[0]
	_, err = r.Document(nil, old.at)
	require.NoError(t, err, "the removed file is still open")
	require.NoError(t, r.DropReplaced())
	_, err = r.Document(nil, old.at)
	var gone *GoneError
	require.ErrorAs(t, err, &gone)
	requireDocuments(t, r, live)

	// A reader that has fetched nothing yet finds the dictionaries of rewrites, too.
	fresh := openReader(t, mem)
	infos, err := fresh.Segments()
	require.NoError(t, err)
	found := 0
	for _, info := range infos {
		if info.Generation > 0 && info.DictionaryBytes > 0 {
			content, err := fresh.Dictionary(nil, info.dictionary)
			require.NoError(t, err)
			require.Len(t, content, info.DictionaryBytes)
			found++
		}
	}
	require.Positive(t, found)
}
