package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// source is a queue in memory and the documents in it.
type source struct {
	fs        *vfs.Mem
	dir       string
	layout    shard.Layout
	documents map[string]string
	sealed    map[string]string // the documents in sealed segments
}

func newSource() *source {
	return &source{fs: vfs.NewMem(), dir: "queue", layout: shard.Layout{Shards: 1}, documents: map[string]string{}}
}

// newSharded returns a source with four shards. No writer has opened them.
func newSharded(t testing.TB) *source {
	t.Helper()
	s := newSource()
	s.layout = shard.Layout{Shards: 4, Seed: 11}
	require.NoError(t, shard.Write(s.fs, s.dir, s.layout))
	return s
}

// dirs returns the directories of the queues.
func (s *source) dirs() []string {
	dirs := make([]string, s.layout.Shards)
	for i := range dirs {
		dirs[i] = s.layout.Dir(s.dir, i)
	}
	return dirs
}

// openWriters opens the queues.
func (s *source) openWriters(t testing.TB) []*queue.Writer {
	t.Helper()
	var writers []*queue.Writer
	for _, dir := range s.dirs() {
		w, err := queue.OpenWriter(dir, &queue.WriterOptions{FS: s.fs, SegmentBytes: queue.MinSegmentBytes, Codec: "none"})
		require.NoError(t, err)
		writers = append(writers, w)
	}
	return writers
}

// write appends documents and deletes, by ids; an empty document is a delete.
func (s *source) write(t testing.TB, seal bool, entries ...[2]string) {
	t.Helper()
	writers := s.openWriters(t)
	for _, e := range entries {
		w := writers[s.layout.ShardString(e[0])]
		var err error
		if e[1] == "" {
			_, err = w.Delete([]byte(e[0]))
			delete(s.documents, e[0])
		} else {
			_, err = w.Append([]byte(e[0]), []byte(e[1]))
			s.documents[e[0]] = e[1]
		}
		require.NoError(t, err)
	}
	if seal {
		s.sealed = maps.Clone(s.documents)
	}
	for _, w := range writers {
		require.NoError(t, w.Flush())
		if seal {
			require.NoError(t, w.Seal())
		}
		require.NoError(t, w.Close())
	}
}

// read returns the documents of a queue, or of all shards.
func read(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	layout, err := shard.Read(fsys, dir)
	require.NoError(t, err)
	documents := map[string]string{}
	for i := range layout.Shards {
		for id, document := range readQueue(t, fsys, layout.Dir(dir, i)) {
			require.Equal(t, i, layout.ShardString(id))
			documents[id] = document
		}
	}
	return documents
}

// readQueue returns the documents of a queue.
func readQueue(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: fsys})
	require.NoError(t, err)
	defer r.Close()
	addresses := map[string]queue.Address{}
	require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		addresses[string(e.ID)] = e.Address
		if e.Deleted {
			delete(addresses, string(e.ID))
		}
		return nil
	}))
	documents := map[string]string{}
	for id, a := range addresses {
		document, err := r.DocumentFor(nil, []byte(id), a)
		require.NoError(t, err)
		documents[id] = string(document)
	}
	return documents
}

func tryPublish(t testing.TB, b bucket.Bucket, s *source) (Published, error) {
	t.Helper()
	p, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs})
	if err != nil {
		return Published{}, err
	}
	defer p.Close()
	return p.Publish(t.Context())
}

func publish(t testing.TB, b bucket.Bucket, s *source) Published {
	t.Helper()
	published, err := tryPublish(t, b, s)
	require.NoError(t, err)
	return published
}

func publishError(t testing.TB, b bucket.Bucket, s *source) error {
	t.Helper()
	_, err := tryPublish(t, b, s)
	require.Error(t, err)
	return err
}

func restore(t testing.TB, b bucket.Bucket, number uint64) *source {
	t.Helper()
	m, _, err := FindManifest(t.Context(), b, number, time.Now)
	require.NoError(t, err)
	s := newSource()
	require.NoError(t, Restore(t.Context(), b, m, s.dir, &Options{FS: s.fs}))
	s.layout = m.Layout
	s.documents = read(t, s.fs, s.dir)
	s.sealed = maps.Clone(s.documents)
	return s
}

func compact(t testing.TB, s *source, maxDead float64, deleteOriginals bool) {
	t.Helper()
	for _, dir := range s.dirs() {
		_, err := maintain.Compact(t.Context(), dir, &maintain.CompactOptions{FS: s.fs, MaxDead: maxDead, DeleteOriginals: deleteOriginals})
		require.NoError(t, err)
	}
}

func digestOf(content []byte) Digest { return sha256.Sum256(content) }

func readerOf(content []byte) *bytes.Reader { return bytes.NewReader(content) }

// TestModel publishes a queue at random moments, while it is appended to, compacted and
// restored. Each manifest restores the documents of its moment.
func TestModel(t *testing.T) {
	t.Run("one queue", func(t *testing.T) { testModel(t, newSource()) })
	t.Run("shards", func(t *testing.T) { testModel(t, newSharded(t)) })
}

func testModel(t *testing.T, s *source) {
	rng, b := testseed.Rand(t), newBucket(t)
	states := map[uint64]map[string]string{}
	var newest uint64
	for step := range 60 {
		switch rng.IntN(7) {
		case 6:
			if s.sealed != nil {
				s.write(t, true)
				s.keepOpen(t, [2]string{fmt.Sprint("id-", rng.IntN(20)), fmt.Sprint("open ", step)})
			}
		case 0, 1:
			var entries [][2]string
			for range 1 + rng.IntN(30) {
				document := fmt.Sprintf("%d/%d/%d", step, rng.Uint64(), rng.Uint64())
				if rng.IntN(5) == 0 {
					document = ""
				}
				entries = append(entries, [2]string{fmt.Sprint("id-", rng.IntN(20)), document})
			}
			s.write(t, true, entries...)
		case 2:
			if len(s.documents) > 0 {
				compact(t, s, rng.Float64(), rng.IntN(2) == 0)
			}
		case 3, 4:
			if s.sealed == nil {
				continue
			}
			if rng.IntN(3) > 0 {
				s.write(t, true)
			}
			published, err := tryPublish(t, b, s)
			if err != nil {
				require.ErrorContains(t, err, "run docstore-updater seal")
				s.write(t, true)
				published = publish(t, b, s)
			}
			if published.New {
				newest++
				states[newest] = s.sealed
			}
			require.Equal(t, newest, published.Ref.Number)
			require.False(t, publish(t, b, s).New, "nothing has changed")
		case 5:
			if newest == 0 {
				continue
			}
			number := 1 + rng.Uint64N(newest)
			restored := restore(t, b, number)
			require.Equal(t, states[number], restored.documents)
			if number == newest && rng.IntN(2) == 0 {
				// The ingest host is lost; entries that were not published are lost with it.
				s = restored
			}
		}
	}
}

func TestRestoredQueueContinues(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"}, [2]string{"b", "2"})
	require.EqualValues(t, 1, publish(t, b, s).Ref.Number)
	restored := restore(t, b, 0)
	restored.write(t, true, [2]string{"a", ""}, [2]string{"c", "3"})
	published := publish(t, b, restored)
	require.EqualValues(t, 2, published.Ref.Number)
	require.EqualValues(t, 3, published.Manifest.Documents())
	require.EqualValues(t, 1, published.Manifest.Deletes())
	require.Equal(t, map[string]string{"b": "2", "c": "3"}, restore(t, b, 2).documents)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, restore(t, b, 1).documents)
}

func TestPublishSendsEachFileOnce(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	first := publish(t, b, s)
	require.Equal(t, first.Manifest.Bytes(), first.Uploaded)
	s.write(t, true, [2]string{"b", "2"})
	second := publish(t, b, s)
	require.Equal(t, second.Manifest.Bytes()-first.Manifest.Bytes(), second.Uploaded)
}

func TestPublishRefuses(t *testing.T) {
	t.Run("an empty queue", func(t *testing.T) {
		s := newSource()
		s.write(t, false)
		require.ErrorContains(t, publishError(t, newBucket(t), s), "no sealed segment")
	})
	t.Run("a store that replaces objects", func(t *testing.T) {
		s := newSource()
		s.write(t, true, [2]string{"a", "1"})
		require.ErrorContains(t, publishError(t, replacing{newBucket(t)}, s), "a put never replaces an object")
	})
	t.Run("another queue", func(t *testing.T) {
		b, s, other := newBucket(t), newSource(), newSource()
		s.write(t, true, [2]string{"a", "1"})
		other.write(t, true, [2]string{"a", "1"})
		publish(t, b, s)
		require.ErrorContains(t, publishError(t, b, other), "give the URL of another prefix")
	})
	t.Run("an older copy", func(t *testing.T) {
		b, s := newBucket(t), newSource()
		s.write(t, true, [2]string{"a", "1"})
		older := &source{fs: s.fs.CrashClone(vfs.KeepAll), dir: s.dir, layout: s.layout, documents: maps.Clone(s.documents)}
		s.write(t, true, [2]string{"b", "2"})
		publish(t, b, s)
		require.ErrorContains(t, publishError(t, b, older), "it is an older copy")

		// It is written again: its segment 2 is not that of the manifest.
		older.write(t, true, [2]string{"b", "3"})
		require.ErrorContains(t, publishError(t, b, older), "restored from an older copy and written again")
		require.Equal(t, s.documents, restore(t, b, 0).documents)
	})
	t.Run("a missing segment", func(t *testing.T) {
		s := newSource()
		s.write(t, true, [2]string{"a", "1"})
		s.write(t, true, [2]string{"b", "2"})
		require.NoError(t, s.fs.Remove(filepath.Join(s.dir, "0000000001.seg")))
		require.ErrorIs(t, publishError(t, newBucket(t), s), queue.ErrIncomplete)
	})
	t.Run("a rewrite that an open segment decides about", func(t *testing.T) {
		s := newSource()
		for i := range 5 {
			s.write(t, true, [2]string{"a", fmt.Sprint(i)})
		}
		s.keepOpen(t, [2]string{"a", "new"})
		compact(t, s, 0.01, true)
		b := newBucket(t)
		require.ErrorContains(t, publishError(t, b, s), "run docstore-updater seal")
		s.write(t, true)
		publish(t, b, s)
		require.Equal(t, map[string]string{"a": "new"}, restore(t, b, 0).documents)
	})
}

// replacing is a store that ignores the condition of a put.
type replacing struct{ bucket.Bucket }

func (b replacing) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := b.Delete(ctx, name); err != nil {
		return err
	}
	return b.Bucket.Put(ctx, name, body, size)
}

// keepOpen appends an entry and leaves the segment open, as a writer that was killed does.
func (s *source) keepOpen(t testing.TB, entry [2]string) {
	t.Helper()
	dir := s.dirs()[s.layout.ShardString(entry[0])]
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{FS: s.fs, Codec: "none"})
	require.NoError(t, err)
	_, err = w.Append([]byte(entry[0]), []byte(entry[1]))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	s.fs = s.fs.CrashClone(vfs.KeepAll)
	s.documents[entry[0]] = entry[1]
	require.NoError(t, w.Close())
}

func TestSecondPublisherFencesTheFirst(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	first, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs})
	require.NoError(t, err)
	defer first.Close()
	publish(t, b, s)
	s.write(t, true, [2]string{"b", "2"})
	_, err = first.Publish(t.Context())
	require.ErrorIs(t, err, ErrFenced)
	require.Equal(t, map[string]string{"a": "1"}, restore(t, b, 0).documents)
}

// hookBucket calls before ahead of the first List or Get.
type hookBucket struct {
	bucket.Bucket
	once   sync.Once
	before func()
}

func (b *hookBucket) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	b.once.Do(b.before)
	return b.Bucket.List(ctx, prefix, after)
}

func (b *hookBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	b.once.Do(b.before)
	return b.Bucket.Get(ctx, name, offset, length)
}

// TestOpenWhileAnotherPublishes: another Publisher of the same queue commits a segment that is
// sealed while this one opens. The queue is not taken for an older copy.
func TestOpenWhileAnotherPublishes(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	publish(t, b, s)
	p, err := OpenPublisher(t.Context(), &hookBucket{Bucket: b, before: func() {
		s.write(t, true, [2]string{"b", "2"})
		publish(t, b, s)
	}}, s.dir, &Options{FS: s.fs})
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

// TestConcurrentPublishersCommitDenseNumbers: publishers take over from each other all the
// time; the chain of manifests has no gap, and restores everything.
func TestConcurrentPublishersCommitDenseNumbers(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"id", "0"})
	done := make(chan error)
	for range 4 {
		go func() {
			done <- func() error {
				for range 10 {
					p, err := OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs})
					if err != nil {
						return err
					}
					if _, err = p.Publish(t.Context()); err != nil && !errors.Is(err, ErrFenced) {
						return err
					}
					_ = p.Close()
				}
				return nil
			}()
		}()
	}
	for i := range 10 {
		s.write(t, true, [2]string{fmt.Sprint("id", i), "1"})
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	publish(t, b, s)
	record, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	want := record.Head.Number
	for m, err := range Manifests(t.Context(), b, record) {
		require.NoError(t, err)
		require.Equal(t, want, m.Number)
		want--
	}
	require.Zero(t, want)
	require.Equal(t, s.documents, restore(t, b, 0).documents)
}

// TestRestoreDetectsDamage changes a byte of each object, at several places.
func TestRestoreDetectsDamage(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	s.write(t, true, [2]string{"b", "2"})
	published := publish(t, b, s)
	for _, object := range []string{published.Ref.object(), published.Manifest.Files[0].object(), published.Manifest.Files[1].object()} {
		info, err := b.Head(t.Context(), object)
		require.NoError(t, err)
		for at := int64(0); at < info.Size; at += 1 + info.Size/20 {
			flip := func(s string) string { c := []byte(s); c[at] ^= 1; return string(c) }
			replaceObject(t, b, object, flip)
			err := func() error {
				m, _, err := FindManifest(t.Context(), b, 0, time.Now)
				if err != nil {
					return err
				}
				return Restore(t.Context(), b, m, "restored", &Options{FS: vfs.NewMem()})
			}()
			require.ErrorIs(t, err, ErrCorrupt, "%s byte %d", object, at)
			replaceObject(t, b, object, flip)
		}
		replaceObject(t, b, object, func(s string) string { return s[:len(s)-1] })
		_, _, err = FindManifest(t.Context(), b, 0, time.Now)
		if err == nil {
			err = Restore(t.Context(), b, published.Manifest, "restored", &Options{FS: vfs.NewMem()})
		}
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, b.Delete(t.Context(), object))
		publishAgain(t, b, s, published)
	}
}

// publishAgain puts the objects of a manifest back.
func publishAgain(t *testing.T, b bucket.Bucket, s *source, published Published) {
	t.Helper()
	data, ref, err := published.Manifest.encode()
	require.NoError(t, err)
	require.Equal(t, published.Ref, ref)
	require.NoError(t, putManifest(t.Context(), b, data, ref))
	p := &Publisher{bucket: b, source: &directory{path: s.dir}, options: (&Options{FS: s.fs}).withDefaults()}
	for _, f := range published.Manifest.Files {
		require.NoError(t, p.uploadFile(t.Context(), &f))
	}
}

// TestRestoreContinues lets each operation fail in turn; another Restore completes it.
func TestRestoreContinues(t *testing.T) {
	b, s := newBucket(t), newSource()
	for i := range 3 {
		s.write(t, true, [2]string{fmt.Sprint(i), "document"})
	}
	m := publish(t, b, s).Manifest
	injected := errors.New("injected fault")
	for k := int64(1); ; k++ {
		mem, reached := vfs.NewMem(), false
		fault := vfs.NewFault(mem, func(op vfs.Op) error {
			if op.N == k {
				reached = true
				return injected
			}
			return nil
		})
		err := Restore(t.Context(), b, m, s.dir, &Options{FS: fault})
		if !reached {
			require.NoError(t, err)
			return
		}
		after := mem.CrashClone(vfs.KeepRandom(uint64(k)))
		require.NoError(t, Restore(t.Context(), b, m, s.dir, &Options{FS: after}), "after a fault at operation %d", k)
		require.Equal(t, s.documents, read(t, after, s.dir))
	}
}

func TestRestoreRefusesForeignFiles(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	m := publish(t, b, s).Manifest
	s.write(t, true, [2]string{"b", "2"})
	err := Restore(t.Context(), b, m, s.dir, &Options{FS: s.fs})
	require.ErrorIs(t, err, ErrRefused)

	other := newSource()
	other.write(t, true, [2]string{"a", "1"})
	require.NoError(t, other.fs.Remove(filepath.Join(other.dir, queue.HeadName)))
	require.NoError(t, other.fs.Remove(filepath.Join(other.dir, "LOCK")))
	require.ErrorContains(t, Restore(t.Context(), b, m, other.dir, &Options{FS: other.fs}), "exists with other content")
}

func TestFindManifestRefuses(t *testing.T) {
	b, s := newBucket(t), newSource()
	_, _, err := FindManifest(t.Context(), b, 0, time.Now)
	require.ErrorContains(t, err, "no manifests")
	s.write(t, true, [2]string{"a", "1"})
	publish(t, b, s)
	_, _, err = FindManifest(t.Context(), b, 2, time.Now)
	require.ErrorContains(t, err, "the newest is 1")
}

// TestInvalidManifests: a manifest with a right digest and wrong content.
func TestInvalidManifests(t *testing.T) {
	valid := func() *Manifest {
		return &Manifest{
			Number: 1, Layout: shard.Layout{Shards: 1}, Heads: []queue.Head{{Sealed: 1, Highest: 1, Time: time.UnixMilli(0)}},
			Files: []File{{Name: "0000000001.seg", Size: 100}},
		}
	}
	for name, change := range map[string]func(*Manifest){
		"number":     func(m *Manifest) { m.Previous.Number = 1 },
		"documents":  func(m *Manifest) { m.Files[0].Documents = -1 },
		"file name":  func(m *Manifest) { m.Files[0].Name = "../../etc/passwd" },
		"open file":  func(m *Manifest) { m.Files[0].Name = "0000000001.open" },
		"file order": func(m *Manifest) { m.Files = append(m.Files, m.Files[0]) },
		"file size":  func(m *Manifest) { m.Files[0].Size = queue.MaxSegmentBytes + 1 },
	} {
		m := valid()
		change(m)
		_, _, err := m.encode()
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	data, ref, err := valid().encode()
	require.NoError(t, err)
	decoded, err := decodeManifest(data, ref)
	require.NoError(t, err)
	require.Equal(t, valid().Files, decoded.Files)
}
