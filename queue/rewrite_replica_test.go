package queue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestCompactPartialReplica compacts a random queue in batches of random size. Replicas
// that have copied only some of the files, but one for each segment, serve the same
// documents as the source: no deleted document, and each live one. Replicas with damaged
// and quarantined rewrites serve no deleted document and never state that a live one does
// not exist. The replicas are checked after each rewrite.
func TestCompactPartialReplica(t *testing.T) {
	random := testseed.Rand(t)
	mem := queuetest.NewMem(t)
	m := &queuetest.Model{Random: random, Now: queuetest.Start, Newest: map[string]queuetest.Item{}}
	opts := queuetest.Options(mem)
	opts.BlockBytes = 1000
	w := queuetest.OpenWriter(t, opts)
	replicas := []*replica{newReplica(t, random), newReplica(t, random), newReplica(t, random)}
	damaged := []*replica{newReplica(t, random), newReplica(t, random), newReplica(t, random)}
	lookAtReplicas := func() {
		for _, r := range append(replicas, newReplica(t, random)) {
			r.copySome(t, random, mem)
			m.RequireIndex(t, r.reader, r.index.Follow(t, r.reader, -1))
			requireCache(t, r.reader)
			r.index = r.index.Follow(t, r.reader, random.IntN(300))
		}
		for _, r := range damaged {
			r.copySome(t, random, mem)
			r.damageSome(t, random)
			r.requireNeverWrong(t, random, m)
		}
	}
	for range 16 {
		for range 2 + random.IntN(8) {
			m.Write(t, w, 1+random.IntN(30))
			require.NoError(t, w.Seal())
		}
		m.Now = m.Now.Add(time.Second)
		renamed := false
		observed := vfs.NewFault(mem, func(op vfs.Op) error {
			if renamed { // a rewrite has its name
				lookAtReplicas()
			}
			renamed = op.Kind == vfs.OpRename
			return nil
		})
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
			FS: observed, MaxDead: 0.01 + 0.3*random.Float64(), DeleteOriginals: random.IntN(2) == 0,
			MemoryBytes: 100 + random.Int64N(1<<12), Now: func() time.Time { return m.Now },
		})
		require.NoError(t, err)
		lookAtReplicas()
	}
}

// replica is an incomplete copy of a queue, with an index that follows it.
type replica struct {
	mem    *vfs.Mem
	reader *queue.Reader
	index  queuetest.Follower
}

func newReplica(t *testing.T, random *rand.Rand) *replica {
	mem := queuetest.NewMem(t)
	r := queuetest.OpenReader(t, mem)
	r.Files().Limit = 1 + random.IntN(20)
	return &replica{mem, r, queuetest.Follower{Index: map[string]queuetest.Indexed{}}}
}

// copySome copies some of the source's files, and at least one for each segment.
// Sometimes it then removes files that the source no longer has.
func (r *replica) copySome(t *testing.T, random *rand.Rand, source *vfs.Mem) {
	names, err := source.List(queuetest.Dir)
	require.NoError(t, err)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	some, covered := random.IntN(len(names)+1), map[queue.SegmentID]bool{}
	for i, name := range names {
		f, ok := queue.ParseFileName(name)
		if !ok {
			continue
		}
		_, err := r.mem.Stat(queuetest.Dir + "/" + name)
		there := err == nil
		wanted := i < some
		for n := f.First; n <= f.Last; n++ {
			wanted = wanted || !there && !covered[n]
		}
		if wanted {
			content, err := vfs.ReadFile(source, queuetest.Dir+"/"+name)
			require.NoError(t, err)
			require.NoError(t, vfs.WriteFileAtomic(r.mem, queuetest.Dir+"/"+name, content))
		}
		for n := f.First; n <= f.Last && (wanted || there); n++ {
			covered[n] = true
		}
	}
	if random.IntN(3) > 0 {
		return
	}
	copied, err := r.mem.List(queuetest.Dir)
	require.NoError(t, err)
	for _, name := range copied {
		whole, isQuarantined := strings.CutSuffix(name, queue.QuarantineSuffix)
		if isQuarantined && slices.Contains(names, whole) && !slices.Contains(copied, whole) {
			continue // it has not been copied again
		}
		if !slices.Contains(names, name) {
			require.NoError(t, r.mem.Remove(queuetest.Dir+"/"+name))
		}
	}
}

// damageSome quarantines, cuts and changes some rewrites.
func (r *replica) damageSome(t *testing.T, random *rand.Rand) {
	names, err := r.mem.List(queuetest.Dir)
	require.NoError(t, err)
	for _, name := range names {
		path := queuetest.Dir + "/" + name
		if _, ok := segment.ParseRewriteName(name); !ok || random.IntN(3) > 0 {
			continue
		}
		content, err := vfs.ReadFile(r.mem, path)
		require.NoError(t, err)
		if i := random.IntN(len(content) + 1); i < len(content) {
			switch random.IntN(4) {
			case 0:
				content = content[:i]
			case 1, 2:
				content[i] ^= 1 << random.IntN(8)
			}
		}
		require.NoError(t, vfs.WriteFileAtomic(r.mem, path, content))
		if random.IntN(2) == 0 {
			require.NoError(t, r.mem.Rename(path, path+queue.QuarantineSuffix))
		}
	}
}

// requireNeverWrong checks the ids whose newest entry the replica's index has read.
func (r *replica) requireNeverWrong(t *testing.T, random *rand.Rand, m *queuetest.Model) {
	if random.IntN(2) == 0 {
		r.reader.Close()
		r.reader = queuetest.OpenReader(t, r.mem)
	}
	for _, steps := range []int{0, random.IntN(300), random.IntN(300)} {
		next, err := r.index.TryFollow(r.reader, steps)
		if err != nil && !errors.Is(err, queue.ErrCorrupt) {
			require.ErrorIs(t, err, queue.ErrUnavailable, "the tail waits for a whole file")
		}
		r.index = next
		for id, newest := range m.Newest {
			if newest.At.Compare(next.At.Next) < 0 {
				if err := m.CheckID(t, r.reader, next, id); err != nil {
					require.ErrorIs(t, err, queue.ErrUnavailable)
				}
			}
		}
	}
	requireCache(t, r.reader)
}

// TestReplicaServesDeletedDocument: a compaction in two batches rewrites the segment of a
// document, and then that of its delete. The delete must stay: a replica may have the
// second rewrite and, of the first segment, the original.
func TestReplicaServesDeletedDocument(t *testing.T) {
	for _, memory := range []int64{1, 1 << 20} { // two batches; one
		mem := queuetest.NewMem(t)
		w := queuetest.OpenWriter(t, queuetest.Options(mem))
		put := func(items ...queuetest.Item) {
			for _, it := range items {
				it.Put(t, w)
			}
			require.NoError(t, w.Seal())
		}
		put(queuetest.Item{ID: "deleted", Document: "document"}, queuetest.Item{ID: "overwritten", Document: "old"})
		put(queuetest.Item{ID: "kept", Document: "document"})
		put(queuetest.Item{ID: "deleted", Deleted: true}, queuetest.Item{ID: "overwritten", Document: "newer"}, queuetest.Item{ID: "overwritten", Document: "newest"})
		put(queuetest.Item{ID: "last", Document: "document"})
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, MemoryBytes: memory})
		require.NoError(t, err)
		require.NoError(t, mem.Remove(queuetest.Dir+"/0000000001-0000000001.0001.seg"), "not copied yet")
		index := queuetest.Follower{Index: map[string]queuetest.Indexed{}}
		index = index.Follow(t, queuetest.OpenReader(t, mem), -1)
		require.NotContains(t, index.Index, "deleted")
	}
}

// TestDamagedRewriteDoesNotBringDeletesBack: the source has dropped a deleted document
// with one rewrite and its delete with another. A replica that has the original file, and
// a damaged copy of the first rewrite, must not read the original.
func TestDamagedRewriteDoesNotBringDeletesBack(t *testing.T) {
	const rewrite = queuetest.Dir + "/0000000001-0000000001.0001.seg"
	for name, damage := range map[string]func(t *testing.T, replica *vfs.Mem){
		"quarantined": func(t *testing.T, replica *vfs.Mem) {
			require.NoError(t, replica.Rename(rewrite, rewrite+queue.QuarantineSuffix))
		},
		"damaged": func(t *testing.T, replica *vfs.Mem) {
			content, err := vfs.ReadFile(replica, rewrite)
			require.NoError(t, err)
			content[segment.HeaderBytes/2] ^= 1
			require.NoError(t, vfs.WriteFileAtomic(replica, rewrite, content))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := queuetest.NewMem(t)
			w := queuetest.OpenWriter(t, queuetest.Options(mem))
			put := func(items ...queuetest.Item) {
				for _, it := range items {
					it.Put(t, w)
				}
				require.NoError(t, w.Seal())
			}
			put(queuetest.Item{ID: "deleted", Document: "document"}, queuetest.Item{ID: "kept", Document: "document"})
			put(queuetest.Item{ID: "between", Document: "document"})
			put(queuetest.Item{ID: "deleted", Deleted: true}, queuetest.Item{ID: "overwritten", Document: "old"})
			put(queuetest.Item{ID: "overwritten", Document: "newest"})
			original, err := vfs.ReadFile(mem, queuetest.Dir+"/0000000001.seg")
			require.NoError(t, err)
			now := queuetest.Start
			for range 4 {
				now = now.Add(time.Hour)
				_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
					FS: mem, MaxDead: 0.01, MemoryBytes: 1, DeleteOriginals: true, Now: func() time.Time { return now },
				})
				require.NoError(t, err)
			}
			require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000001.seg", original))
			damage(t, mem)
			var corruption *queue.CorruptionError
			err = queuetest.OpenReader(t, mem).Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
				require.NotEqual(t, "deleted", string(e.ID))
				return nil
			})
			require.ErrorAs(t, err, &corruption)
			require.Contains(t, corruption.Path, rewrite)
		})
	}
}
