package publish

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/shard"

	"github.com/stretchr/testify/require"
)

// written returns a source of four shards with n documents in sealed segments.
func written(t testing.TB, n int) *source {
	t.Helper()
	s := newSharded(t)
	s.write(t, true, documents(n)...)
	return s
}

func documents(n int) [][2]string {
	var entries [][2]string
	for i := range n {
		entries = append(entries, [2]string{fmt.Sprint("id-", i), fmt.Sprint("document ", i)})
	}
	return entries
}

// TestShardIsManifestOfItsQueue: each view restores a queue with the documents of one shard.
func TestShardIsManifestOfItsQueue(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	m := publish(t, b, s).Manifest
	require.EqualValues(t, 40, m.Documents())
	all, bytes := map[string]string{}, int64(0)
	for i := range s.layout.Shards {
		view, err := m.Shard(i)
		require.NoError(t, err)
		require.NoError(t, checkChain(view))
		require.Equal(t, m.Number, view.Number)
		require.Equal(t, m.ShardBytes()[i], view.Bytes())
		bytes += view.Bytes()
		restored := newSource()
		require.NoError(t, Restore(t.Context(), b, view, restored.dir, &Options{FS: restored.fs}))
		maps.Copy(all, read(t, restored.fs, restored.dir))
		restored.write(t, true, [2]string{"more", "document"})
	}
	require.Equal(t, s.documents, all)
	require.Equal(t, m.Bytes(), bytes)
	for _, i := range []int{-1, 4} {
		_, err := m.Shard(i)
		require.ErrorIs(t, err, ErrRefused)
	}
	one := newSource()
	one.write(t, true, documents(1)...)
	m = publish(t, newBucket(t), one).Manifest
	view, err := m.Shard(0)
	require.NoError(t, err)
	require.Equal(t, m, view)
	_, err = m.Shard(1)
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, []int64{m.Bytes()}, m.ShardBytes())
}

// TestUnchangedShardsKeepTheirFiles: a manifest after a change in one shard has the other
// shards as before.
func TestUnchangedShardsKeepTheirFiles(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	publish(t, b, s)
	s.write(t, true, [2]string{"id-0", "changed"})
	published := publish(t, b, s)
	changed := s.layout.ShardString("id-0")
	before, _, err := FindManifest(t.Context(), b, 1, time.Now)
	require.NoError(t, err)
	after, _, err := FindManifest(t.Context(), b, 2, time.Now)
	require.NoError(t, err)
	for i := range s.layout.Shards {
		was, err := before.Shard(i)
		require.NoError(t, err)
		is, err := after.Shard(i)
		require.NoError(t, err)
		require.Equal(t, i != changed, was.Heads[0] == is.Heads[0], "shard %d", i)
	}
	files, bytes := published.Manifest.FilesSince(before)
	require.Equal(t, 1, files)
	require.Equal(t, published.Uploaded, bytes)
	require.False(t, publish(t, b, s).New)
}

// TestEmptyShards: shards without a directory or without documents are published, and the
// restored queue continues.
func TestEmptyShards(t *testing.T) {
	b, s := newBucket(t), newSharded(t)
	require.ErrorContains(t, publishError(t, b, s), "no sealed segment")
	only := s.layout.ShardString("id-0")
	w, err := queue.OpenWriter(s.dirs()[only], &queue.WriterOptions{FS: s.fs})
	require.NoError(t, err)
	_, err = w.Append([]byte("id-0"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	m := publish(t, b, s).Manifest
	require.Len(t, m.Files, 1)
	restored := restore(t, b, 0)
	require.Equal(t, map[string]string{"id-0": "document"}, restored.documents)
	restored.write(t, true, documents(20)...)
	publish(t, b, restored)
	require.Equal(t, restored.documents, restore(t, b, 0).documents)
}

// TestManifestWithHostileLayout: each wrong field is found when a manifest is read.
func TestManifestWithHostileLayout(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	good := publish(t, b, s).Manifest
	require.NoError(t, good.validate())
	one := newSource()
	one.write(t, true, documents(1)...)
	head := publish(t, newBucket(t), one).Manifest.Heads[0]
	for name, change := range map[string]func(m *storedManifest){
		"no layout":               func(m *storedManifest) { m.Layout = nil },
		"layout in format 1":      func(m *storedManifest) { m.Format = 1 },
		"format 0":                func(m *storedManifest) { m.Format = 0 },
		"3 shards":                func(m *storedManifest) { m.Layout.Shards, m.Heads = 3, m.Heads[:3] },
		"1 shard":                 func(m *storedManifest) { m.Layout.Shards, m.Heads = 1, m.Heads[:1] },
		"negative shards":         func(m *storedManifest) { m.Layout.Shards = -4 },
		"too many shards":         func(m *storedManifest) { m.Layout.Shards = 1 << 30 },
		"fewer shards":            func(m *storedManifest) { m.Layout.Shards, m.Heads = 2, m.Heads[:2] },
		"a head is missing":       func(m *storedManifest) { m.Heads = m.Heads[:3] },
		"more heads than shards":  func(m *storedManifest) { m.Heads = append(m.Heads, m.Heads[0]) },
		"a head of one queue":     func(m *storedManifest) { m.Head = head },
		"a shard without a head":  func(m *storedManifest) { m.Heads[2] = queue.Head{} },
		"a head without files":    func(m *storedManifest) { m.Files = m.Files[1:] },
		"a name without a shard":  func(m *storedManifest) { m.Files[0].Name = "0000000001.seg" },
		"a name of another shard": func(m *storedManifest) { m.Files[3].Name = "shard-0004/0000000001.seg" },
		"a name that is padded":   func(m *storedManifest) { m.Files[0].Name = "shard-00000/0000000001.seg" },
		"a negative shard":        func(m *storedManifest) { m.Files[0].Name = "shard--001/0000000001.seg" },
		"a signed shard":          func(m *storedManifest) { m.Files[0].Name = "shard-+000/0000000001.seg" },
		"a path":                  func(m *storedManifest) { m.Files[0].Name = "shard-0000/../../0000000001.seg" },
		"a parent directory":      func(m *storedManifest) { m.Files[0].Name = "../0000000001.seg" },
		"an open segment":         func(m *storedManifest) { m.Files[0].Name = "shard-0000/0000000001.open" },
		"the layout":              func(m *storedManifest) { m.Files[0].Name = "shard-0000/LAYOUT" },
		"names not in order":      func(m *storedManifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] },
	} {
		t.Run(name, func(t *testing.T) {
			m := good.stored()
			layout := *m.Layout
			m.Layout, m.Heads, m.Files = &layout, slices.Clone(m.Heads), slices.Clone(m.Files)
			change(m)
			_, err := m.manifest()
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	newer := good.stored()
	newer.Format = shardsFormat + 1
	_, err := newer.manifest()
	require.ErrorIs(t, err, ErrNewerVersion)
}

// TestLayoutChangesOnlyWithAGeneration: queues and other layouts replace each other only with
// NewGeneration.
func TestLayoutChangesOnlyWithAGeneration(t *testing.T) {
	b := newBucket(t)
	one, four, eight := newSource(), newSharded(t), newSource()
	eight.layout = shard.Layout{Shards: 8, Seed: 11}
	require.NoError(t, shard.Write(eight.fs, eight.dir, eight.layout))
	for i, s := range []*source{one, four, eight, one} {
		s.write(t, true, documents(20)...)
		if i > 0 {
			err := publishError(t, b, s)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "--new-generation")
		}
		p, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs, NewGeneration: true})
		require.NoError(t, err)
		published, err := p.Publish(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.Close())
		require.EqualValues(t, i+1, published.Ref.Number)
		require.Equal(t, i+1, record(t, b).Generation(published.Ref.Number))
		require.Equal(t, s.documents, restore(t, b, 0).documents)
	}
	_, err := CheckQueue(t.Context(), b, four.dir, &Options{FS: four.fs})
	require.ErrorIs(t, err, ErrRefused)
	from, _, err := FindManifest(t.Context(), b, 1, time.Now)
	require.NoError(t, err)
	to, _, err := FindManifest(t.Context(), b, 2, time.Now)
	require.NoError(t, err)
	_, err = Compare(t.Context(), b, from, to, four.dir, &Options{FS: four.fs})
	require.ErrorIs(t, err, ErrRefused)
	// A directory has one layout.
	for _, m := range []*Manifest{from, to} {
		require.ErrorIs(t, Restore(t.Context(), b, m, eight.dir, &Options{FS: eight.fs}), ErrRefused)
		require.ErrorIs(t, NewReplica(b, eight.dir, &Options{FS: eight.fs}).Fetch(t.Context(), m), ErrRefused)
	}
}

// TestGenerationWithTheSameLayout: other shards with the same layout are another queue, and the
// documents of both are restored.
func TestGenerationWithTheSameLayout(t *testing.T) {
	b, first, second := newBucket(t), written(t, 40), written(t, 20)
	publish(t, b, first)
	for _, check := range []func() error{
		func() error { return publishError(t, b, second) },
		func() error {
			_, err := CheckQueue(t.Context(), b, second.dir, &Options{FS: second.fs})
			return err
		},
		func() error {
			_, err := Discard(t.Context(), b, second.dir, 1, &Options{FS: second.fs})
			return err
		},
	} {
		require.ErrorContains(t, check(), "holds queue shards-4-000000000000000b-")
	}
	p, err := OpenPublisher(t.Context(), b, second.dir, &Options{FS: second.fs, NewGeneration: true})
	require.NoError(t, err)
	_, err = p.Publish(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close())
	r := record(t, b)
	require.False(t, r.SameQueue(1, 2))
	require.Equal(t, first.documents, restore(t, b, 1).documents)
	require.Equal(t, second.documents, restore(t, b, 2).documents)
	second.write(t, true, documents(30)...)
	publish(t, b, second)
	require.True(t, record(t, b).SameQueue(2, 3))
	require.ErrorIs(t, publishError(t, b, first), ErrRefused)
}

// TestOlderCopyOfOneShardIsRefused, and a shard with another history.
func TestOlderCopyOfOneShardIsRefused(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	publish(t, b, s)
	older := restore(t, b, 0)
	s.write(t, true, documents(40)...)
	publish(t, b, s)
	current := restore(t, b, 0)
	dir := s.dirs()[2]
	require.NoError(t, current.fs.RemoveAll(dir))
	err := publishError(t, b, current)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, publishError(t, b, older), "older copy")
	older.write(t, true, documents(40)...)
	require.ErrorContains(t, publishError(t, b, older), "written again")
}

// TestChunksOfShards: an interrupted publish of many shards continues, and each manifest
// restores.
func TestChunksOfShards(t *testing.T) {
	before := chunkBytes
	t.Cleanup(func() { chunkBytes = before })
	chunkBytes = 1
	b, s := newBucket(t), newSharded(t)
	for i := range 3 {
		s.write(t, true, documents(10*(i+1))...)
	}
	for killed := 0; ; killed++ {
		p, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs})
		require.NoError(t, err)
		p.bucket = newKilledBucket(b, 5+killed)
		_, err = p.Publish(t.Context())
		require.NoError(t, p.Close())
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errKilled)
	}
	require.EqualValues(t, 12, record(t, b).Head.Number, "a manifest for each file")
	require.Equal(t, s.documents, restore(t, b, 0).documents)
	for number := range record(t, b).Head.Number {
		restore(t, b, number+1)
	}
	checked, err := Check(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, checked.Problems)
}

func record(t testing.TB, b bucket.Bucket) Record {
	t.Helper()
	r, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	return r
}

// TestRestoreOfShardsContinues lets each request fail in turn.
func TestRestoreOfShardsContinues(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	s.write(t, true, documents(20)...)
	m := publish(t, b, s).Manifest
	restored := newSource()
	for killed := 0; ; killed++ {
		err := Restore(t.Context(), newKilledBucket(b, 1), m, restored.dir, &Options{FS: restored.fs, Concurrency: 1})
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errKilled)
		require.Less(t, killed, len(m.Files))
	}
	require.Equal(t, s.documents, read(t, restored.fs, restored.dir))
	other := newSource()
	require.NoError(t, other.fs.MkdirAll(other.dir+"/shard-0000"))
	f, err := other.fs.Create(other.dir + "/shard-0000/notes")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.ErrorIs(t, Restore(t.Context(), b, m, other.dir, &Options{FS: other.fs}), ErrRefused)
}

// TestValidateShards: damage in any shard is found, and bounds are those of the collection.
func TestValidateShards(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	first := publish(t, b, s).Manifest
	for i := range 10 {
		s.write(t, true, [2]string{fmt.Sprint("id-", i), ""})
	}
	m := publish(t, b, s).Manifest
	validate := func(accepted *Manifest, bounds Bounds) error {
		return Validate(t.Context(), b, m, accepted, "validate", bounds, &Options{FS: s.fs})
	}
	require.NoError(t, validate(first, Bounds{MinDocuments: 40, MaxDeletes: 0.25, RequiredIDs: []string{"id-10", "id-39"}}))
	require.ErrorIs(t, validate(first, Bounds{MaxDeletes: 0.24}), ErrRejected)
	require.ErrorIs(t, validate(first, Bounds{MinDocuments: 41}), ErrRejected)
	require.ErrorIs(t, validate(nil, Bounds{RequiredIDs: []string{"id-10", "id-3"}}), ErrRejected)
	require.ErrorIs(t, validate(nil, Bounds{RequiredIDs: []string{"unknown"}}), ErrRejected)

	c, err := Compare(t.Context(), b, first, m, s.dir, &Options{FS: s.fs})
	require.NoError(t, err)
	require.Equal(t, Difference{Deleted: 10}, c)
	names, err := s.fs.List(".")
	require.NoError(t, err)
	require.Equal(t, []string{"queue", "validate"}, names, "the copies are removed")

	for _, f := range m.Files {
		require.NoError(t, s.fs.RemoveAll("validate"))
		flip := func(content string) string {
			flipped := []byte(content)
			flipped[200] ^= 1
			return string(flipped)
		}
		replaceObject(t, b, f.object(), flip)
		require.ErrorIs(t, validate(first, Bounds{MinDocuments: 1000}), ErrCorrupt, f.Name)
		replaceObject(t, b, f.object(), flip)
	}
}

// TestIncarnation: the placer of the shards learns from it that their documents are others.
func TestIncarnation(t *testing.T) {
	b, s := newBucket(t), written(t, 40)
	m := publish(t, b, s).Manifest
	record, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1-shards-4-000000000000000b", m.Incarnation(record))
	one := newSource()
	one.write(t, true, documents(1)...)
	p, err := OpenPublisher(t.Context(), b, one.dir, &Options{FS: one.fs, NewGeneration: true})
	require.NoError(t, err)
	published, err := p.Publish(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close())
	record, err = openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "2-shards-1-0000000000000000", published.Manifest.Incarnation(record))
}

func announce(t testing.TB, b bucket.Bucket, ref Ref) {
	t.Helper()
	_, err := openLog(t, b).Update(t.Context(), func(r Record) (Record, error) {
		r, err := r.Validate(ref)
		if err != nil {
			return Record{}, err
		}
		return r.Announce(ref)
	})
	require.NoError(t, err)
}

// TestManifestIncludesAnnouncedEntries: no manifest lacks entries that increments have announced,
// also if only some shards are sealed, and if the files are published in several manifests.
func TestManifestIncludesAnnouncedEntries(t *testing.T) {
	before := chunkBytes
	t.Cleanup(func() { chunkBytes = before })
	b, s := newBucket(t), written(t, 40)
	p, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs, Stream: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	first, err := p.Publish(t.Context())
	require.NoError(t, err)
	announce(t, b, first.Ref)
	writers := s.openWriters(t)
	defer func() {
		for _, w := range writers {
			require.NoError(t, w.Close())
		}
	}()
	for i := range 16 { // all fit into the first open segments
		id := fmt.Sprint("announced-", i)
		w := writers[s.layout.ShardString(id)]
		_, err := w.Append([]byte(id), []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		s.documents[id] = "document"
	}
	extended, err := p.Extend(t.Context())
	require.NoError(t, err)
	require.Empty(t, extended.Reason)
	require.False(t, extended.Sealed)

	unchanged, err := p.Publish(t.Context())
	require.NoError(t, err)
	require.False(t, unchanged.New, "no segment was sealed since")
	require.NoError(t, writers[1].Seal())
	_, err = p.Publish(t.Context())
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "increments of manifest 1 announced entries of segment 2 in "+s.dirs()[0]+", which is not sealed: run docstore-updater seal")
	require.Equal(t, first.Ref, record(t, b).Head)

	for _, w := range writers {
		require.NoError(t, w.Seal())
	}
	for i := range 16 { // segments that were not announced
		id := fmt.Sprint("later-", i)
		_, err := writers[s.layout.ShardString(id)].Append([]byte(id), []byte("document"))
		require.NoError(t, err)
	}
	for _, w := range writers {
		require.NoError(t, w.Seal())
	}
	chunkBytes = 1 // a manifest for each file
	published, err := p.Publish(t.Context())
	require.NoError(t, err)
	require.True(t, published.Announced)
	require.Greater(t, published.Ref.Number, first.Ref.Number+1, "several manifests")
	for n := first.Ref.Number + 1; n <= published.Ref.Number; n++ {
		restored := restore(t, b, n).documents
		for id := range s.documents {
			require.Contains(t, restored, id, "manifest %d", n)
		}
	}
}
