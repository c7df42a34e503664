package publish

import (
	"context"
	"fmt"
	"path/filepath"

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
// to it; dir can be the queue, or a directory of Validate.
func Compare(ctx context.Context, b bucket.Bucket, from, to *Manifest, dir string, opts *Options) (d Difference, err error) {
	options := opts.withDefaults()
	c := comparison{sameQueue: from.Head.Queue == to.Head.Queue, now: options.Now()}
	for _, side := range []struct {
		m      *Manifest
		reader **queue.Reader
	}{{from, &c.before}, {to, &c.after}} {
		r, remove, err := openManifest(ctx, b, side.m, dir, options)
		if err != nil {
			return Difference{}, err
		}
		defer func() { err = errors.CombineErrors(err, remove()) }()
		*side.reader = r
	}
	err = c.run(ctx, func(_ []byte, v difference) error {
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
	return d, err
}

// openManifest opens the files of a manifest: hard links to those in dir, the others from the
// bucket. remove closes the Reader and removes the files.
func openManifest(ctx context.Context, b bucket.Bucket, m *Manifest, dir string, options Options) (r *queue.Reader, remove func() error, err error) {
	path := fmt.Sprintf("%s.manifest-%d", filepath.Clean(dir), m.Number)
	if err := fetchBeside(ctx, b, m, dir, path, options); err != nil {
		return nil, nil, err
	}
	if r, err = queue.OpenReader(path, &queue.ReaderOptions{FS: options.FS}); err != nil {
		return nil, nil, err
	}
	return r, func() error { return errors.CombineErrors(r.Close(), options.FS.RemoveAll(path)) }, nil
}
