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
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// powerLosses is how often the power goes in a row of the table.
const powerLosses = 12

// powerRun is a queue and its copy on disks that lose what was not synced when the
// power goes, with the daemon's collection and the passes of rsync in this process.
type powerRun struct {
	random *rand.Rand
	// staged: sealed segments are synced before they get their names, as
	// docstore-sync has it; else as rsync does by itself.
	staged bool

	source *vfs.Mem
	writer *queue.Writer
	// documents is what was appended, of which the last may not be flushed.
	documents []document
	flushed   int

	copied     *vfs.Mem
	collection *docservice.Collection
	seen       map[string]bool // was served, and no power lost since
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
	r.collection, err = docservice.OpenCollection(collection, queueDir, "/data", &docservice.CollectionOptions{
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
		for got := []byte(nil); !bytes.Equal(got, d.line); { // it must come, however long it takes
			got, _ = r.collection.Get(nil, []byte(d.id))
			r.pass(t)
		}
	}
	for status := r.collection.Status(); !status.Ready || len(status.Faults) > 0; status = r.collection.Status() {
		r.pass(t)
	}
	r.check(t)
}

// write appends some documents.
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

// pass is one of docstore-sync: what it does with names and bytes.
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
			if err == nil && here.Size == info.Size { // rsync looks no further
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

// bring copies a sealed segment and gives it its name when it is whole.
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

// appendOpen is rsync --append: it takes what is here for right. It may be
// interrupted.
func (r *powerRun) appendOpen(t *testing.T, name string, here int64) {
	t.Helper()
	path := filepath.Join(queueDir, name)
	content, err := vfs.ReadFile(r.source, path)
	require.NoError(t, ignoreMissing(err)) // the writer seals it when it likes
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

// check asks for documents: right, or not to be had here and now. Not found are only
// those that were never served.
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
			require.False(t, r.seen[d.id], "%s was served, and is said not to exist", d.id)
		default:
			require.ErrorIs(t, err, docservice.ErrUnavailable, d.id)
		}
	}
}

// loseSource takes the power from the ingest host. What was flushed is there again;
// what was not is appended once more, as --resume does.
func (r *powerRun) loseSource(t *testing.T) {
	t.Helper()
	after := r.source.CrashClone(vfs.KeepRandom(r.random.Uint64()))
	require.NoError(t, r.writer.Close()) // on the disk that is no more
	r.source = after
	r.openWriter(t)
	for _, d := range r.documents[r.flushed:] {
		_, err := r.writer.Append([]byte(d.id), d.line)
		require.NoError(t, err)
	}
}

// loseCopy takes the power from the serving machine, and with it what rsync and the
// daemon have not synced.
func (r *powerRun) loseCopy(t *testing.T) {
	t.Helper()
	after := r.copied.CrashClone(vfs.KeepRandom(r.random.Uint64()))
	require.NoError(t, r.collection.Close()) // on the disk that is no more
	r.copied, r.seen = after, map[string]bool{}
	r.openCollection(t)
	r.check(t)
}
