package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// entries returns the entries of a queue that readers see, in order.
func entries(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: fsys})
	require.NoError(t, err)
	defer r.Close()
	all := []string{}
	require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		document, err := r.DocumentFor(nil, e.ID, e.Address)
		all = append(all, string(e.ID)+"="+string(document))
		return err
	}))
	return all
}

// unsteady loses responses: a put fails although the object was created, or reports that
// it existed.
type unsteady struct {
	bucket.Bucket

	mu  sync.Mutex // files are put concurrently
	rng *rand.Rand
}

var errNoResponse = errors.New("no response")

func (b *unsteady) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := b.Bucket.Put(ctx, name, body, size); err != nil || strings.HasPrefix(name, "check/") {
		return err
	}
	b.mu.Lock()
	outcome := b.rng.IntN(10)
	b.mu.Unlock()
	switch outcome {
	default:
		return nil
	case 0:
		return errNoResponse
	case 1:
		return bucket.ErrExist
	}
}

// streamModel is a queue that is streamed to a bucket, and a replica.
type streamModel struct {
	t      *testing.T
	rng    *rand.Rand
	bucket bucket.Bucket

	source    *source // on the ingest host
	writers   []*queue.Writer
	publisher *Publisher // nil: it failed, or was not opened
	appended  int        // entries
	stale     []*Publisher

	announced []int // number of entries of each queue that were certainly announced

	replicaFS  *vfs.Mem
	target     Ref
	manifest   *Manifest
	extensions []*Extension // of the queues; nil: not open
}

func newStreamModel(t *testing.T, rng *rand.Rand, s *source) *streamModel {
	m := &streamModel{t: t, rng: rng, bucket: &unsteady{Bucket: newBucket(t), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}, source: s, replicaFS: vfs.NewMem()}
	m.announced = make([]int, len(s.dirs()))
	m.writers = s.openWriters(t)
	return m
}

func (m *streamModel) append() {
	for range 1 + m.rng.IntN(5) {
		id := fmt.Append(nil, m.appended)
		_, err := m.writers[m.source.layout.Shard(id)].Append(id, make([]byte, m.rng.IntN(400)))
		require.NoError(m.t, err)
		m.appended++
	}
	for _, w := range m.writers {
		if m.rng.IntN(4) > 0 {
			require.NoError(m.t, w.Flush())
		}
	}
}

// entries returns the entries of the queues.
func (m *streamModel) entries(fsys vfs.FS) [][]string {
	m.t.Helper()
	var all [][]string
	for _, dir := range m.source.dirs() {
		all = append(all, entries(m.t, fsys, dir))
	}
	return all
}

// allAnnounced records that all entries that readers see were announced.
func (m *streamModel) allAnnounced() {
	m.t.Helper()
	for i, all := range m.entries(m.source.fs) {
		m.announced[i] = max(m.announced[i], len(all))
	}
}

// requireAnnounced compares the entries of a file system with those that were announced.
func (m *streamModel) requireAnnounced(fsys vfs.FS) [][]string {
	m.t.Helper()
	all := m.entries(fsys)
	for i := range all {
		require.GreaterOrEqual(m.t, len(all[i]), m.announced[i], "announced entries were lost")
	}
	return all
}

// publish seals the segment and publishes it, or only announces an increment.
func (m *streamModel) publish(seal bool) {
	m.t.Helper()
	var err error
	if seal {
		for _, w := range m.writers {
			require.NoError(m.t, w.Seal())
		}
	}
	if m.publisher == nil {
		m.publisher, err = OpenPublisher(m.t.Context(), m.bucket, m.source.dir, &Options{FS: m.source.fs, Stream: true})
	}
	if err == nil && seal {
		if _, err = m.publisher.Publish(m.t.Context()); err == nil {
			m.allAnnounced()
		}
	}
	var extended Extended
	if err == nil {
		extended, err = m.publisher.Extend(m.t.Context())
		require.Empty(m.t, extended.Reason)
	}
	if err == nil && !extended.Full {
		m.allAnnounced()
	}
	if err != nil {
		if m.publisher != nil {
			require.NoError(m.t, m.publisher.Close())
		}
		m.publisher = nil
	}
	switch {
	case err == nil, errors.Is(err, errNoResponse):
	case errors.Is(err, ErrRefused):
		require.ErrorContains(m.t, err, "no sealed segment")
	default:
		require.NoError(m.t, err)
	}
}

// crash ends the ingest process, with or without a power loss.
func (m *streamModel) crash() {
	keep := []vfs.Keep{vfs.KeepAll, vfs.KeepSynced}[m.rng.IntN(2)]
	clone := m.source.fs.CrashClone(keep)
	m.closeIngest()
	m.source.fs = clone
	m.writers = m.source.openWriters(m.t)
	m.requireAnnounced(clone)
}

func (m *streamModel) closeIngest() {
	if m.publisher != nil {
		require.NoError(m.t, m.publisher.Close())
		m.publisher = nil
	}
	m.closeWriters()
}

func (m *streamModel) closeWriters() {
	for _, w := range m.writers {
		require.NoError(m.t, w.Close())
	}
}

// lose restores the queue on another host. The old publisher continues later.
func (m *streamModel) lose() {
	manifest, ref, err := FindManifest(m.t.Context(), m.bucket, 0, time.Now)
	if errors.Is(err, ErrRefused) {
		return // nothing was published
	}
	require.NoError(m.t, err)
	m.closeWriters()
	if m.publisher != nil {
		m.stale, m.publisher = append(m.stale, m.publisher), nil
	}
	m.source.fs = vfs.NewMem()
	options := &Options{FS: m.source.fs}
	require.NoError(m.t, Restore(m.t.Context(), m.bucket, manifest, m.source.dir, options))
	_, err = RestoreIncrements(m.t.Context(), m.bucket, ref, manifest, m.source.dir, options)
	require.NoError(m.t, err)
	m.writers = m.source.openWriters(m.t)
	all := m.requireAnnounced(m.source.fs)
	last := len(all) - 1
	alone := &Options{FS: vfs.NewMem()}
	require.NoError(m.t, RestoreShard(m.t.Context(), m.bucket, ref, manifest, last, "alone", alone))
	require.Equal(m.t, all[last], entries(m.t, alone.FS, "alone"))
	m.allAnnounced()
}

// resumeStale lets a publisher continue that another one has replaced.
func (m *streamModel) resumeStale() {
	if len(m.stale) == 0 || m.publisher == nil {
		return
	}
	p := m.stale[0]
	extended, err := p.Extend(m.t.Context())
	require.Zero(m.t, extended.Bytes)
	if err != nil && !errors.Is(err, errNoResponse) {
		require.ErrorIs(m.t, err, ErrFenced)
	}
	if published, err := p.Publish(m.t.Context()); err == nil {
		require.False(m.t, published.New)
	}
	_, err = p.Check(m.t.Context())
	require.ErrorIs(m.t, err, ErrFenced)
}

// replicate brings the replica up to date.
func (m *streamModel) replicate() {
	m.t.Helper()
	options := &Options{FS: m.replicaFS}
	log, err := OpenLog(m.t.Context(), m.bucket, time.Now)
	require.NoError(m.t, err)
	record, err := log.Load(m.t.Context())
	require.NoError(m.t, err)
	if record.Announced.Number == 0 {
		return
	}
	require.True(m.t, record.Extends(""))
	if record.Announced != m.target {
		m.target, m.extensions = record.Announced, nil
		m.manifest, err = ReadManifest(m.t.Context(), m.bucket, m.target)
		require.NoError(m.t, err)
		require.NoError(m.t, NewReplica(m.bucket, m.source.dir, options).Fetch(m.t.Context(), m.manifest))
	}
	if m.extensions == nil {
		r := NewIncrementReader(m.bucket, m.manifest)
		options.FS = vfs.NewFault(m.replicaFS, m.fullAtTimes)
		for i, dir := range m.source.dirs() {
			e, err := OpenExtension(m.t.Context(), r, m.target, m.manifest.queueAt(i), i, dir, options)
			require.NoError(m.t, err)
			m.extensions = append(m.extensions, e)
		}
	}
	for _, e := range m.extensions {
		for {
			known := uint64(0)
			if m.rng.IntN(2) == 0 {
				known, err = NewestIncrement(m.t.Context(), m.bucket, m.target)
				require.NoError(m.t, err)
			}
			added, err := e.Next(m.t.Context(), known)
			if errors.Is(err, errDiskFull) {
				continue // there is space again
			}
			require.NoError(m.t, err)
			if added.End {
				break
			}
			require.NotNil(m.t, added.Last)
			if known > 0 {
				require.Equal(m.t, e.Number() < known, added.Behind)
			}
		}
	}
	want := m.entries(m.source.fs)
	for i, got := range m.requireAnnounced(m.replicaFS) {
		require.Equal(m.t, want[i][:len(got)], got)
	}
}

var errDiskFull = errors.New("disk full")

// fullAtTimes lets a write fail after some of its bytes.
func (m *streamModel) fullAtTimes(op vfs.Op) error {
	if op.Kind == vfs.OpWrite && m.rng.IntN(4) == 0 {
		return &vfs.ShortError{Bytes: m.rng.IntN(op.Bytes + 1), Err: errDiskFull}
	}
	return nil
}

// TestStreamModel applies random operations. All entries that were announced reach the
// replica and survive the ingest host, and the replica has no others.
func TestStreamModel(t *testing.T) {
	t.Run("one queue", func(t *testing.T) { testStream(t, newSource()) })
	t.Run("shards", func(t *testing.T) { testStream(t, newSharded(t)) })
}

func testStream(t *testing.T, s *source) {
	m := newStreamModel(t, testseed.Rand(t), s)
	for range 200 {
		switch m.rng.IntN(16) {
		case 0, 1, 2, 3:
			m.append()
		case 4, 5, 6, 7:
			m.publish(false)
		case 8, 9:
			m.publish(true)
		case 10:
			m.crash()
		case 11:
			m.lose()
		case 12:
			m.resumeStale()
		case 13:
			m.extensions = nil // a restart
			m.replicaFS = m.replicaFS.CrashClone([]vfs.Keep{vfs.KeepAll, vfs.KeepSynced}[m.rng.IntN(2)])
			m.target = Ref{}
		default:
			m.replicate()
		}
	}
	m.publish(true)
	m.replicate()
	m.closeIngest()
	for _, p := range m.stale {
		require.NoError(t, p.Close())
	}
}

// TestIncrementHeaderOfTheOtherFormat: the format says how many shards there are.
func TestIncrementHeaderOfTheOtherFormat(t *testing.T) {
	part, base := Part{Segment: 1, To: 1}, Ref{Number: 1}
	for name, h := range map[string]incrementHeader{
		"one shard in format 2":          {Format: shardsIncrementFormat, Part: part},
		"a list of one in format 1":      {Format: incrementFormat, Shards: []Part{part}},
		"a list of one in format 2":      {Format: shardsIncrementFormat, Shards: []Part{part}},
		"several shards in format 1":     {Format: incrementFormat, Shards: []Part{part, part}},
		"format 0":                       {Part: part},
		"other shards than the manifest": {Format: shardsIncrementFormat, Shards: []Part{part, part, part}},
	} {
		h.Increment = &Increment{Base: base, Number: 1}
		header, err := json.Marshal(h)
		require.NoError(t, err)
		for queues := 1; queues <= 2; queues++ {
			_, _, err = decodeIncrement(append(header, '\n'), base, 1, queues)
			require.ErrorIs(t, err, ErrCorrupt, "%s, %d", name, queues)
		}
	}
}
