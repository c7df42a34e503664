package publish

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
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
	rng *rand.Rand
}

var errNoResponse = errors.New("no response")

func (b *unsteady) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := b.Bucket.Put(ctx, name, body, size); err != nil || strings.HasPrefix(name, "check/") {
		return err
	}
	switch b.rng.IntN(10) {
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

	fs        *vfs.Mem // of the ingest host
	writer    *queue.Writer
	publisher *Publisher // nil: it failed, or was not opened
	appended  int        // entries
	stale     []*Publisher

	announced int // number of entries that were certainly announced

	replicaFS *vfs.Mem
	target    Ref
	manifest  *Manifest
	extension *Extension
}

const modelDir = "queue"

func newStreamModel(t *testing.T, rng *rand.Rand) *streamModel {
	m := &streamModel{t: t, rng: rng, bucket: &unsteady{newBucket(t), rng}, fs: vfs.NewMem(), replicaFS: vfs.NewMem()}
	require.NoError(t, m.fs.MkdirAll(modelDir))
	m.openWriter()
	return m
}

func (m *streamModel) openWriter() {
	m.t.Helper()
	var err error
	m.writer, err = queue.OpenWriter(modelDir, &queue.WriterOptions{FS: m.fs, SegmentBytes: queue.MinSegmentBytes, Codec: "none"})
	require.NoError(m.t, err)
}

func (m *streamModel) append() {
	for range 1 + m.rng.IntN(5) {
		_, err := m.writer.Append(fmt.Append(nil, m.appended), make([]byte, m.rng.IntN(400)))
		require.NoError(m.t, err)
		m.appended++
	}
	if m.rng.IntN(4) > 0 {
		require.NoError(m.t, m.writer.Flush())
	}
}

// publish seals the segment and publishes it, or only announces an increment.
func (m *streamModel) publish(seal bool) {
	m.t.Helper()
	var err error
	if seal {
		require.NoError(m.t, m.writer.Seal())
	}
	if m.publisher == nil {
		m.publisher, err = OpenPublisher(m.t.Context(), m.bucket, modelDir, &Options{FS: m.fs, Stream: true})
	}
	if err == nil && seal {
		if _, err = m.publisher.Publish(m.t.Context()); err == nil {
			m.announced = m.appended
		}
	}
	var extended Extended
	if err == nil {
		extended, err = m.publisher.Extend(m.t.Context())
		require.Empty(m.t, extended.Reason)
	}
	if err == nil && !extended.Full {
		m.announced = max(m.announced, len(entries(m.t, m.fs, modelDir)))
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
	clone := m.fs.CrashClone(keep)
	m.closeIngest()
	m.fs = clone
	m.openWriter()
	m.appended = len(entries(m.t, m.fs, modelDir))
	require.GreaterOrEqual(m.t, m.appended, m.announced, "announced entries were lost")
}

func (m *streamModel) closeIngest() {
	if m.publisher != nil {
		require.NoError(m.t, m.publisher.Close())
		m.publisher = nil
	}
	require.NoError(m.t, m.writer.Close())
}

// lose restores the queue on another host. The old publisher continues later.
func (m *streamModel) lose() {
	manifest, ref, err := FindManifest(m.t.Context(), m.bucket, 0, time.Now)
	if errors.Is(err, ErrRefused) {
		return // nothing was published
	}
	require.NoError(m.t, err)
	require.NoError(m.t, m.writer.Close())
	if m.publisher != nil {
		m.stale, m.publisher = append(m.stale, m.publisher), nil
	}
	m.fs = vfs.NewMem()
	options := &Options{FS: m.fs}
	require.NoError(m.t, Restore(m.t.Context(), m.bucket, manifest, modelDir, options))
	_, err = RestoreIncrements(m.t.Context(), m.bucket, ref, manifest, modelDir, options)
	require.NoError(m.t, err)
	m.openWriter()
	m.appended = len(entries(m.t, m.fs, modelDir))
	require.GreaterOrEqual(m.t, m.appended, m.announced, "announced entries were lost")
	m.announced = m.appended
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
		m.target, m.extension = record.Announced, nil
		m.manifest, err = ReadManifest(m.t.Context(), m.bucket, m.target)
		require.NoError(m.t, err)
		require.NoError(m.t, NewReplica(m.bucket, modelDir, options).Fetch(m.t.Context(), m.manifest))
	}
	if m.extension == nil {
		m.extension, err = OpenExtension(m.t.Context(), m.bucket, m.target, m.manifest, modelDir, options)
		require.NoError(m.t, err)
	}
	for {
		i, err := m.extension.Next(m.t.Context())
		require.NoError(m.t, err)
		if i == nil {
			break
		}
	}
	got := entries(m.t, m.replicaFS, modelDir)
	require.GreaterOrEqual(m.t, len(got), m.announced)
	require.Equal(m.t, entries(m.t, m.fs, modelDir)[:len(got)], got)
}

// TestStreamModel applies random operations. All entries that were announced reach the
// replica and survive the ingest host, and the replica has no others.
func TestStreamModel(t *testing.T) {
	m := newStreamModel(t, testseed.Rand(t))
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
			m.extension = nil // a restart
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
