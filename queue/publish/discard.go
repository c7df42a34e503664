package publish

import (
	"context"
	"crypto/rand"

	"docstore/queue"
	"docstore/queue/bucket"

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
	if err := checkID(dir, record, options); err != nil {
		return Discarded{}, err
	}
	from, parent, err := findDiscard(ctx, b, record, from)
	if err != nil {
		return Discarded{}, err
	}
	switch newest, err := newestIncrement(ctx, b, parent); {
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
	report, err := queue.Truncate(ctx, dir, queue.Address{Segment: m.Head.Sealed + 1}, &queue.TruncateOptions{FS: options.FS, Now: options.Now})
	if errors.Is(err, queue.ErrCompacted) {
		return Discarded{}, refused("compact has dropped versions that entries of manifest %d replaced, so that they cannot be removed: use revert --to %d (%v)", from, parent.Number, err)
	}
	if err != nil {
		return Discarded{}, err
	}
	_, err = log.Update(ctx, func(r Record) (Record, error) { return r.discarded(owner, record.Head, parent) })
	return Discarded{From: from, To: record.Head.Number, Parent: parent.Number, Entries: report.Entries}, err
}

// checkID returns an error unless a directory holds the queue of a record.
func checkID(dir string, record Record, options Options) error {
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: options.FS})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it only reads
	files, err := r.Sealed()
	if err != nil {
		return err
	}
	id := ""
	if len(files) > 0 {
		if id, err = queueID(options.FS, dir, files); err != nil {
			return err
		}
	}
	if id != record.Queue {
		return refused("the bucket holds queue %s, and %s holds %q: give the directory of the queue that was published", record.Queue, dir, id)
	}
	return nil
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
	if err := checkID(dir, record, options); err != nil {
		return Record{}, err
	}
	m, err := ReadManifest(ctx, b, base)
	if err != nil {
		return Record{}, err
	}
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: options.FS})
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = r.Close() }() // it only reads
	files, err := r.Sealed()
	if err != nil {
		return Record{}, err
	}
	return record, continues(r, dir, m, files)
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
