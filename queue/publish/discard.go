package publish

import (
	"context"
	"crypto/rand"
	"io/fs"
	"slices"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"

	"github.com/cockroachdb/errors"
)

// Discarded is the result of Discard.
type Discarded struct {
	From, To uint64 // the manifests that were discarded
	Parent   uint64 // the manifest that the queue is equal to now
	Entries  int64  // that were removed from the queue
}

// Discard removes from the queue in dir the entries of a manifest that was never served, and
// all later entries, published or not; 0 is the first manifest that was refused and never
// served. The cursor becomes that of the manifest before. The discarded manifests are marked
// as bad; the next one that is published continues the one before them.
//
// No Writer may be open: queue.ErrLocked. After a failure, Discard can be repeated; until
// then Publish refuses the queue. The order is: mark the manifests as bad, which prevents
// that they are served, and take the collection over; truncate the queue; commit.
func Discard(ctx context.Context, b bucket.Bucket, dir string, from uint64, opts *Options) (Discarded, error) {
	options := opts.withDefaults()
	log, err := OpenLog(ctx, b, options.Now)
	if err != nil {
		return Discarded{}, err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return Discarded{}, err
	}
	if record.Head.Number == 0 {
		return Discarded{}, refused("the bucket has no manifests: check the URL")
	}
	if err := checkID(ctx, b, dir, record, options); err != nil {
		return Discarded{}, err
	}
	from, parent, err := findDiscard(ctx, b, record, from)
	if err != nil {
		return Discarded{}, err
	}
	switch newest, err := NewestIncrement(ctx, b, parent); {
	case err != nil:
		return Discarded{}, err
	case newest > 0:
		return Discarded{}, refused("entries of manifest %d were served as increments of manifest %d: use revert, which appends what undoes them", from, parent.Number)
	}
	if err := log.Claim(ctx); err != nil {
		return Discarded{}, err
	}
	defer log.Release()
	owner := rand.Text()
	if record, err = log.Update(ctx, func(r Record) (Record, error) { return r.discarding(owner, from, parent) }); err != nil {
		return Discarded{}, err
	}
	m, err := ReadManifest(ctx, b, parent)
	if err != nil {
		return Discarded{}, err
	}
	entries, err := truncate(ctx, dir, m, options)
	if errors.Is(err, maintain.ErrCompacted) {
		return Discarded{}, refused("compact has dropped versions that entries of manifest %d replaced, so that they cannot be removed: use revert --to %d (%v)", from, parent.Number, err)
	}
	if err != nil {
		return Discarded{}, err
	}
	_, err = log.Update(ctx, func(r Record) (Record, error) { return r.discarded(owner, record.Head, parent) })
	return Discarded{From: from, To: record.Head.Number, Parent: parent.Number, Entries: entries}, err
}

// truncate removes the entries after those of a manifest, and returns their number. It
// changes nothing if one of the queues cannot be truncated.
func truncate(ctx context.Context, dir string, m *Manifest, options Options) (entries int64, err error) {
	unlock, err := lockShards(dir, m, options)
	if err != nil {
		return 0, err
	}
	defer unlock()
	for _, dryRun := range []bool{true, false} {
		entries = 0
		for i := range m.Layout.Shards {
			n, err := truncateQueue(ctx, m.Layout.Dir(dir, i), m.queueAt(i), dryRun, options)
			if err != nil {
				return 0, err
			}
			entries += n
		}
	}
	return entries, nil
}

func truncateQueue(ctx context.Context, dir string, m *Manifest, dryRun bool, options Options) (entries int64, err error) {
	written, err := hasSegments(options.FS, dir)
	switch {
	case err != nil:
		return 0, err
	case !written && m.Heads[0].Sealed == 0:
		return 0, nil // an empty shard
	case !written:
		return 0, refused("%s has no segments, and manifest %d reaches to segment %d: restore the queue", dir, m.Number, m.Heads[0].Sealed)
	}
	report, err := maintain.Truncate(ctx, dir, queue.Address{Segment: m.Heads[0].Sealed + 1}, &maintain.TruncateOptions{FS: options.FS, Now: options.Now, DryRun: dryRun})
	return report.Entries, err
}

// hasSegments reports whether a segment was ever written to a directory.
func hasSegments(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(names, func(name string) bool { _, ok := queue.ParseFileName(name); return ok }) {
		return true, nil
	}
	head, err := queue.ReadHead(fsys, dir)
	return err == nil && head.Highest > 0, nil
}

// checkID returns an error unless a directory holds the queue of a record.
func checkID(ctx context.Context, b bucket.Bucket, dir string, record Record, options Options) error {
	d, err := openDirectory(options.FS, dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.close() }() // it only reads
	_, err = d.checkID(ctx, b, record)
	return err
}

// checkID returns an error unless the directory holds the queue of a record, and otherwise
// the sealed files.
func (d *directory) checkID(ctx context.Context, b bucket.Bucket, record Record) (sealedFiles, error) {
	files, err := d.sealed()
	if err != nil {
		return nil, err
	}
	id, err := d.id(ctx, b, record, files)
	if err == nil && id != record.Queue {
		err = refused("the bucket holds queue %s, and %s holds %q: give the directory of the queue that was published, or run docstore-updater restore into a new directory", record.Queue, d.path, id)
	}
	return files, err
}

// CheckQueue returns an error that matches ErrRefused if the queue in dir cannot be published
// to a bucket: the bucket holds another queue, or the queue lacks entries of its newest
// manifest. It returns the record.
func CheckQueue(ctx context.Context, b bucket.Bucket, dir string, opts *Options) (Record, error) {
	options := opts.withDefaults()
	log, err := OpenLog(ctx, b, options.Now)
	if err != nil {
		return Record{}, err
	}
	record, err := log.Load(ctx)
	base := record.base(record.Queue)
	if err != nil || base.Number == 0 {
		return record, err
	}
	d, err := openDirectory(options.FS, dir)
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = d.close() }() // it only reads
	files, err := d.checkID(ctx, b, record)
	if err != nil {
		return Record{}, err
	}
	m, err := ReadManifest(ctx, b, base)
	if err != nil {
		return Record{}, err
	}
	return record, d.continues(m, files)
}

// findDiscard returns the manifest to discard, for 0 the first bad one that was never served,
// and its parent.
func findDiscard(ctx context.Context, b bucket.Bucket, r Record, number uint64) (from uint64, parent Ref, err error) {
	if number > r.Head.Number {
		return 0, Ref{}, r.known(number)
	}
	if number > 0 {
		if err := r.unserved(number); err != nil {
			return 0, Ref{}, err
		}
	}
	for ref := r.base(r.Queue); ref.Number > r.served() && r.known(ref.Number) == nil; {
		m, err := ReadManifest(ctx, b, ref)
		if err != nil {
			return 0, Ref{}, err
		}
		ref = m.Continues()
		if m.Number == number || number == 0 && r.IsBad(m.Number) {
			from, parent = m.Number, ref
		}
	}
	switch {
	case from == 0 && number == 0:
		err = refused("no manifest of the queue was refused and never served: there is nothing to discard")
	case from == 0:
		err = refused("manifest %d was discarded or collected already", number)
	case parent.Number == 0 || !r.SameQueue(parent.Number, from):
		err = refused("manifest %d is the first of its queue: delete the queue, append to a new one, and publish that with --new-generation", from)
	}
	return from, parent, err
}

// served returns the highest number that servers may have served.
func (r Record) served() uint64 { return max(r.Served, r.Announced.Number) }

// unserved returns an error if servers may have served a manifest, or a later one.
func (r Record) unserved(number uint64) error {
	if served := r.served(); number <= served {
		return refused("manifest %d was served: use revert, which appends what undoes manifest %d", served, number)
	}
	return nil
}

// discarding marks the manifests from a number on as bad, and makes owner the publisher.
func (r Record) discarding(owner string, from uint64, parent Ref) (Record, error) {
	if err := r.unserved(from); err != nil {
		return Record{}, err
	}
	if err := r.known(parent.Number); err != nil {
		return Record{}, err
	}
	r, err := r.takeOver(r.Queue, owner, false, false)
	if err != nil {
		return Record{}, err
	}
	r.markBad(Range{from, r.Head.Number})
	return r, nil
}

// discarded makes the next manifest continue parent. head is the head of discarding.
func (r Record) discarded(owner string, head, parent Ref) (Record, error) {
	if r.Owner != owner || r.Head != head {
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d: stop the updater, and run discard again", r.Epoch)
	}
	r = r.clone()
	r.Base = &parent
	if r.Validated.Number > parent.Number {
		r.Validated = r.Announced
	}
	if p := r.PinOf(""); r.Frozen && p != nil && parent.Number <= p.To.Number {
		r.Clean = r.Head.Number + 1
	}
	return r, nil
}
