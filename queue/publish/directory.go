package publish

import (
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"docstore/internal/rare"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
)

// directory is the directory of a collection where it is written, with the queues of
// all shards. It is not safe for concurrent use.
type directory struct {
	fs     vfs.FS
	path   string
	layout shard.Layout
	queues []localQueue // by shard
}

// localQueue is a queue of a directory.
type localQueue struct {
	path   string
	prefix string        // of the names of its files in a manifest
	reader *queue.Reader // nil: a shard without a directory
}

// openDirectory opens the queues of a directory for reading.
func openDirectory(fsys vfs.FS, path string) (*directory, error) {
	layout, err := shard.Read(fsys, path)
	if err != nil {
		return nil, err
	}
	d := &directory{fs: fsys, path: path, layout: layout, queues: make([]localQueue, layout.Shards)}
	for i := range d.queues {
		d.queues[i] = localQueue{path: layout.Dir(path, i), prefix: layout.Prefix(i)}
		if err := d.queues[i].open(d); err != nil {
			return nil, errors.CombineErrors(err, d.close())
		}
	}
	return d, nil
}

// open opens the queue, unless it is one of a shard that does not exist yet.
func (q *localQueue) open(d *directory) error {
	if q.reader != nil {
		return nil
	}
	reader, err := queue.OpenReader(q.path, &queue.ReaderOptions{FS: d.fs})
	if d.layout.Shards > 1 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		q.reader = reader
	}
	return err
}

func (d *directory) close() (err error) {
	for _, q := range d.queues {
		if q.reader != nil {
			err = errors.CombineErrors(err, q.reader.Close())
		}
	}
	return err
}

// sealedFiles are the sealed files of the queues of a directory.
type sealedFiles [][]queue.SealedFile

// sealed lists the sealed files.
func (d *directory) sealed() (sealedFiles, error) {
	files := make(sealedFiles, len(d.queues))
	for i := range d.queues {
		q := &d.queues[i]
		err := q.open(d)
		if err == nil && q.reader != nil {
			files[i], err = q.reader.Sealed()
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// count returns the number of files.
func (files sealedFiles) count() (n int) {
	for _, of := range files {
		n += len(of)
	}
	return n
}

// unsettled returns the index of a queue whose rewrites have left out entries because of
// entries in files that are not listed, -1 if there is none.
func (files sealedFiles) unsettled() int {
	return slices.IndexFunc(files, func(of []queue.SealedFile) bool { return !settled(of) })
}

// id returns the name of the queue in a Record: the queue's id, or for shards their layout and
// the id of one of them. If the shards are those of the record, it is the record's.
func (d *directory) id(ctx context.Context, b bucket.Bucket, record Record, files sealedFiles) (string, error) {
	if files.count() == 0 {
		return "", nil
	}
	name := layoutName(d.layout)
	if d.layout.Shards > 1 && strings.HasPrefix(record.Queue, name) {
		switch same, err := d.holdsShards(ctx, b, record.base(record.Queue), files); {
		case err != nil:
			return "", err
		case same:
			return record.Queue, nil
		}
	}
	first := slices.IndexFunc(files, func(of []queue.SealedFile) bool { return len(of) > 0 })
	id, err := d.queueID(first, files)
	text := hex.EncodeToString(id[:])
	if d.layout.Shards > 1 {
		text = name + "-" + text[:8]
	}
	return text, err
}

func layoutName(l shard.Layout) string { return fmt.Sprintf("shards-%d-%016x", l.Shards, l.Seed) }

// queueID returns the id of a queue with files.
func (d *directory) queueID(i int, files sealedFiles) ([16]byte, error) {
	return queue.IDOf(d.fs, filepath.Join(d.queues[i].path, files[i][0].Name))
}

// holdsShards reports whether the shards are those of a manifest. Shards that are empty in one
// of the two are not compared.
func (d *directory) holdsShards(ctx context.Context, b bucket.Bucket, base Ref, files sealedFiles) (bool, error) {
	if base.Number == 0 {
		return true, nil // another Publisher of this layout has committed nothing
	}
	m, err := ReadManifest(ctx, b, base)
	if err != nil || m.Layout != d.layout {
		return false, err
	}
	compared := 0
	for i, head := range m.Heads {
		if head.Sealed == 0 || len(files[i]) == 0 {
			continue
		}
		id, err := d.queueID(i, files)
		if err != nil || id != head.Queue {
			return false, err
		}
		compared++
	}
	return compared > 0, nil
}

// of returns the manifests of the queues of a directory. A manifest with number 0 is empty.
func (d *directory) of(m *Manifest) ([]*Manifest, error) {
	if m.Number == 0 {
		m = emptyManifest(d.layout)
	}
	if m.Layout != d.layout {
		return nil, refused("manifest %d does not have the layout of %s: give the directory that was published, or --new-generation to replace the whole collection", m.Number, d.path)
	}
	views := make([]*Manifest, len(d.queues))
	for i := range views {
		views[i] = m.queueAt(i)
	}
	return views, nil
}

// continues returns an error unless the queues hold everything that a manifest lists: an
// older copy and another history are refused.
func (d *directory) continues(m *Manifest, files sealedFiles) error {
	views, err := d.of(m)
	for i := range views {
		if err == nil {
			err = d.queues[i].continues(views[i], files[i])
		}
	}
	return err
}

func (q *localQueue) continues(m *Manifest, files []queue.SealedFile) error {
	head := m.Heads[0]
	if head.Sealed == 0 {
		return nil
	}
	last := queue.SegmentID(0)
	if len(files) > 0 {
		last = files[len(files)-1].Last
	}
	if head.Sealed > last {
		return refused("the queue in %s ends with segment %d, and manifest %d reaches to segment %d: it is an older copy; run docstore-updater restore into a new directory", q.path, last, m.Number, head.Sealed)
	}
	footer, err := q.reader.FooterOf(head.Sealed)
	if err != nil {
		return err
	}
	if want := queue.FooterDigest(head.Digest[:]); footer != (queue.FooterDigest{}) && footer != want {
		return refused("segment %d of the queue in %s has the digest %x, and manifest %d has %x: the queue was restored from an older copy and written again, or truncated; complete an interrupted docstore-updater discard, run restore into a new directory, or publish to another prefix", head.Sealed, q.path, footer, m.Number, want)
	}
	return nil
}

// settled reports whether rewrites have left out entries only because of later ones in these
// files: without those, documents would be missing.
func settled(files []queue.SealedFile) bool {
	if len(files) == 0 {
		return true
	}
	last := files[len(files)-1].Last
	return !slices.ContainsFunc(files, func(f queue.SealedFile) bool { return f.Settled.Segment > last })
}

// nextChunk returns the first files of each queue: at least those up to a segment, and then as
// many as are needed for chunkBytes that the parents lack.
func nextChunk(parents []*Manifest, ends []queue.SegmentID, files sealedFiles) sealedFiles {
	chunk, missing := make(sealedFiles, len(files)), int64(0)
	most := rare.Limit("chunk", chunkBytes, 16<<10)
	for i, of := range files {
		n, bytes := chunkOf(parents[i], ends[i], of, missing, most)
		chunk[i], missing = of[:n], bytes
	}
	return chunk
}

// chunkOf returns how many files of one queue belong to a chunk that has bytes already, ends after
// so many, and reaches to a segment at least, and how many bytes it has with them.
func chunkOf(parent *Manifest, end queue.SegmentID, files []queue.SealedFile, bytes, most int64) (int, int64) {
	if bytes >= most && end == 0 {
		return 0, bytes
	}
	known := parent.byName()
	for i, f := range files {
		if old, ok := known[f.Name]; !ok || !old.is(f) {
			bytes += f.Size
		}
		if bytes >= most && f.Last >= end && settled(files[:i+1]) {
			return i + 1, bytes
		}
	}
	return len(files), bytes
}

// lockShards makes sure that no Writer of the shards of a manifest is opened until unlock is
// called. One shard has the lock of its queue.
func lockShards(dir string, m *Manifest, options Options) (unlock func(), err error) {
	if m.Layout.Shards == 1 {
		return func() {}, nil
	}
	lock, err := queue.LockDir(options.FS, dir, options.Now())
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// SealedSegments returns the last sealed segment of each shard of the collection in dir. open
// reports whether a shard without a sealed segment has entries.
func SealedSegments(fsys vfs.FS, dir string) (sealed []queue.SegmentID, open bool, err error) {
	layout, err := shard.Read(fsys, dir)
	if err != nil {
		return nil, false, err
	}
	sealed = make([]queue.SegmentID, layout.Shards)
	for i := range sealed {
		head, err := queue.ReadHead(fsys, layout.Dir(dir, i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
		sealed[i] = head.Sealed
		open = open || head.Sealed == 0 && !head.End.IsZero()
	}
	return sealed, open, nil
}
