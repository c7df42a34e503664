package publish

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Difference counts the ids whose documents differ between two manifests.
type Difference struct {
	Added   int64 `json:"added"`   // have a document only in the later one
	Changed int64 `json:"changed"` // the document or its expiry differs
	Deleted int64 `json:"deleted"` // have a document only in the earlier one
}

// FilesSince returns the number and the size of the files that a manifest lists and another
// one does not.
func (m *Manifest) FilesSince(other *Manifest) (files int, bytes int64) {
	known := map[Digest]bool{}
	for _, f := range other.Files {
		known[f.Digest] = true
	}
	for _, f := range m.Files {
		if !known[f.Digest] {
			files++
			bytes += f.Size
		}
	}
	return files, bytes
}

// Compare counts the ids that differ between two manifests. Documents that have expired count
// as deleted. Files that dir does not have are downloaded into temporary directories next
// to it; dir can be the queue, or a directory of Validate. ErrRefused: the manifests have
// different layouts.
func Compare(ctx context.Context, b bucket.Bucket, from, to *Manifest, dir string, opts *Options) (d Difference, err error) {
	options := opts.withDefaults()
	if from.Layout != to.Layout {
		return Difference{}, refused("manifests %d and %d divide the collection into different shards: their documents cannot be compared", from.Number, to.Number)
	}
	copies := []*manifestCopy{openCopy(b, from, dir, options), openCopy(b, to, dir, options)}
	defer func() {
		for _, c := range copies {
			err = errors.CombineErrors(err, c.remove())
		}
	}()
	for i := range to.Layout.Shards {
		if err := d.add(ctx, copies, i, options.Now()); err != nil {
			return Difference{}, err
		}
	}
	return d, nil
}

// add adds the differences of one queue of two manifests.
func (d *Difference) add(ctx context.Context, copies []*manifestCopy, i int, now time.Time) (err error) {
	c := comparison{sameQueue: copies[0].manifest.queueAt(i).sameQueues(copies[1].manifest.queueAt(i)), now: now}
	for side, reader := range []**queue.Reader{&c.before, &c.after} {
		if *reader, err = copies[side].open(ctx, i); err != nil {
			return err
		}
		defer func() { err = errors.CombineErrors(err, (*reader).Close()) }()
	}
	return c.run(ctx, func(_ []byte, v difference) error {
		switch {
		case !v.before.live:
			d.Added++
		case !v.after.live:
			d.Deleted++
		default:
			d.Changed++
		}
		return nil
	})
}

// manifestCopy is a temporary directory with the files of a manifest: hard links to those in
// another directory, the others from the bucket.
type manifestCopy struct {
	bucket   bucket.Bucket
	manifest *Manifest
	from     string
	path     string
	options  Options
}

// openCopy returns a copy without files, next to the directory from.
func openCopy(b bucket.Bucket, m *Manifest, from string, options Options) *manifestCopy {
	return &manifestCopy{b, m, from, fmt.Sprintf("%s.manifest-%d", filepath.Clean(from), m.Number), options}
}

// open fetches the files of one queue and opens them.
func (c *manifestCopy) open(ctx context.Context, i int) (*queue.Reader, error) {
	path, m := c.manifest.Layout.Dir(c.path, i), c.manifest.queueAt(i)
	if err := vfs.MakeDir(c.options.FS, path); err != nil {
		return nil, err
	}
	if err := LinkFiles(c.options.FS, m, c.manifest.Layout.Dir(c.from, i), path); err != nil {
		return nil, err
	}
	if err := NewReplica(c.bucket, path, &c.options).Fetch(ctx, m); err != nil {
		return nil, err
	}
	return queue.OpenReader(path, &queue.ReaderOptions{FS: c.options.FS})
}

// remove removes the files. The readers must be closed.
func (c *manifestCopy) remove() error { return c.options.FS.RemoveAll(c.path) }
