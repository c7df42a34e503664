package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// powerLosses is the number of simulated power losses per row.
const powerLosses = 12

// powerRun is a queue and its copy on in-memory disks that drop unsynced data at a power loss.
// The collection of the daemon and the rsync passes run in this process.
type powerRun struct {
	random *rand.Rand
	// staged: sealed segments are synced before they are renamed, as docstore-sync does; rsync
	// alone does not sync.
	staged bool

	source *vfs.Mem
	writer *queue.Writer
	// documents are the appended documents; the last ones may not be flushed.
	documents []document
	flushed   int

	copied     *vfs.Mem
	collection *collection.Collection
	seen       map[string]bool // served since the last power loss
}

const queueDir = "/queue"

func powerLossAtSource(t *testing.T) {
	newPowerRun(t, true).run(t, (*powerRun).loseSource)
}

func powerLossAtCopy(staged bool) func(*testing.T) {
	return func(t *testing.T) { newPowerRun(t, staged).run(t, (*powerRun).loseCopy) }
}

func newPowerRun(t *testing.T, staged bool) *powerRun {
	r := &powerRun{random: testseed.Rand(t), staged: staged, source: vfs.NewMem(), copied: vfs.NewMem(), seen: map[string]bool{}}
	for _, disk := range []*vfs.Mem{r.source, r.copied} {
		require.NoError(t, disk.MkdirAll(queueDir))
		require.NoError(t, disk.SyncDir("/"))
	}
	require.NoError(t, r.copied.MkdirAll(filepath.Join(queueDir, ".sync")))
	require.NoError(t, r.copied.SyncDir(queueDir))
	r.openWriter(t)
	r.openCollection(t)
	return r
}

func (r *powerRun) openWriter(t *testing.T) {
	t.Helper()
	var err error
	r.writer, err = queue.OpenWriter(queueDir, &queue.WriterOptions{FS: r.source, Codec: "none", BlockBytes: 4 << 10, SegmentBytes: 64 << 10})
	require.NoError(t, err)
}

func (r *powerRun) openCollection(t *testing.T) {
	t.Helper()
	var err error
	r.collection, err = collection.Open(collectionName, queueDir, "/data", &collection.Options{
		FS: r.copied, MemtableBytes: 16 << 10, PollInterval: time.Millisecond, RetryInterval: time.Millisecond,
		VerifyInterval: time.Millisecond, Quarantine: true, QuarantineAfter: time.Nanosecond,
	})
	require.NoError(t, err)
}

func (r *powerRun) run(t *testing.T, lose func(*powerRun, *testing.T)) {
	defer func() { require.NoError(t, r.collection.Close()) }()
	defer func() { require.NoError(t, r.writer.Close()) }()
	for range powerLosses {
		for range 1 + r.random.IntN(8) {
			r.write(t)
			r.pass(t)
			r.check(t)
		}
		lose(r, t)
	}
	require.NoError(t, r.writer.Flush())
	r.flushed = len(r.documents)
	for _, d := range r.documents {
		for got := []byte(nil); !bytes.Equal(got, d.line); { // no time limit
			got, _ = r.collection.Get(nil, []byte(d.id))
			r.pass(t)
		}
	}
	for status := r.collection.Status(); !status.Ready || len(status.Faults) > 0; status = r.collection.Status() {
		r.pass(t)
	}
	r.check(t)
}

// write appends documents.
func (r *powerRun) write(t *testing.T) {
	t.Helper()
	for range 1 + r.random.IntN(30) {
		id := fmt.Sprintf("id-%d", len(r.documents))
		d := document{id: id, line: bytes.Repeat([]byte(id+" "), 1+r.random.IntN(200))}
		_, err := r.writer.Append([]byte(d.id), d.line)
		require.NoError(t, err)
		r.documents = append(r.documents, d)
	}
	switch r.random.IntN(4) {
	case 0:
	case 1:
		require.NoError(t, r.writer.Seal())
		r.flushed = len(r.documents)
	default:
		require.NoError(t, r.writer.Flush())
		r.flushed = len(r.documents)
	}
}

// pass performs the file operations of one docstore-sync pass.
func (r *powerRun) pass(t *testing.T) {
	t.Helper()
	names, err := r.source.List(queueDir)
	require.NoError(t, err)
	for _, name := range names {
		path := filepath.Join(queueDir, name)
		number, sealed := strings.CutSuffix(name, ".seg")
		switch here, err := r.copied.Stat(path); {
		case sealed:
			info, missing := r.source.Stat(path)
			require.NoError(t, missing)
			if err == nil && here.Size == info.Size { // rsync compares nothing else
				continue
			}
			r.bring(t, name)
			require.NoError(t, ignoreMissing(r.copied.Remove(filepath.Join(queueDir, number+".open"))))
		case strings.HasSuffix(name, ".open"):
			r.appendOpen(t, name, here.Size)
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// bring copies a sealed segment and renames it when it is complete.
func (r *powerRun) bring(t *testing.T, name string) {
	t.Helper()
	content, err := vfs.ReadFile(r.source, filepath.Join(queueDir, name))
	require.NoError(t, err)
	staged := filepath.Join(queueDir, ".sync", name)
	require.NoError(t, ignoreMissing(r.copied.Remove(staged)))
	file, err := r.copied.Create(staged)
	require.NoError(t, err)
	_, err = file.Write(content)
	require.NoError(t, err)
	if r.staged {
		require.NoError(t, file.Sync())
	}
	require.NoError(t, file.Close())
	require.NoError(t, r.copied.Rename(staged, filepath.Join(queueDir, name)))
}

// appendOpen is rsync --append: it assumes that the local bytes are correct. It may be
// interrupted.
func (r *powerRun) appendOpen(t *testing.T, name string, here int64) {
	t.Helper()
	path := filepath.Join(queueDir, name)
	content, err := vfs.ReadFile(r.source, path)
	require.NoError(t, ignoreMissing(err)) // the writer may seal it
	if here >= int64(len(content)) {
		return
	}
	file, err := r.copied.OpenAppend(path)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = r.copied.Create(path)
	}
	require.NoError(t, err)
	_, err = file.Write(content[here : here+1+r.random.Int64N(int64(len(content))-here)])
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// check fetches documents: each is correct or unavailable. Only documents that were never
// served may be not found.
func (r *powerRun) check(t *testing.T) {
	t.Helper()
	for range 30 {
		d := r.documents[r.random.IntN(len(r.documents))]
		got, err := r.collection.Get(nil, []byte(d.id))
		switch {
		case err == nil:
			require.Equal(t, string(d.line), string(got))
			r.seen[d.id] = true
		case errors.Is(err, docservice.ErrNotFound):
			require.False(t, r.seen[d.id], "%s was served and is now not found", d.id)
		default:
			require.ErrorIs(t, err, docservice.ErrUnavailable, d.id)
		}
	}
}

// loseSource simulates a power loss of the ingest host. Flushed documents remain; the others
// are appended again, as --resume does.
func (r *powerRun) loseSource(t *testing.T) {
	t.Helper()
	after := r.source.CrashClone(vfs.KeepRandom(r.random.Uint64()))
	require.NoError(t, r.writer.Close()) // on the disk before the power loss
	r.source = after
	r.openWriter(t)
	for _, d := range r.documents[r.flushed:] {
		_, err := r.writer.Append([]byte(d.id), d.line)
		require.NoError(t, err)
	}
}

// loseCopy simulates a power loss of the serving machine: rsync and the daemon lose their
// unsynced data.
func (r *powerRun) loseCopy(t *testing.T) {
	t.Helper()
	after := r.copied.CrashClone(vfs.KeepRandom(r.random.Uint64()))
	require.NoError(t, r.collection.Close()) // on the disk before the power loss
	r.copied, r.seen = after, map[string]bool{}
	r.openCollection(t)
	r.check(t)
}
