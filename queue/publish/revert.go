package publish

import (
	"context"
	"slices"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Undone is a change that Revert has undone.
type Undone struct {
	ID      []byte // valid until the callback returns
	Deleted bool   // the change was a delete
	// Manifest is the first manifest with the change; 0: it was not published.
	Manifest uint64
	// Bad: that manifest is marked as bad.
	Bad bool
}

// Reverted is the result of Revert.
type Reverted struct {
	Published
	Restored int64 // documents that were appended as they were
	Deleted  int64 // documents that were deleted
	Good     int64 // of these changes, those that were first in a manifest not marked as bad
}

// Revert appends to the queue in dir what makes it equal to a manifest: for each id that
// differs, the document with its expiry, or a delete. It seals and publishes; the new
// manifest can be validated and announced after a rollback. Entries that were not published
// are undone, too. The cursor stays that of the newest entries.
//
// undone, if not nil, is called for each id, shard by shard. No Writer may be open: queue.ErrLocked.
// Documents that exceed the memory for comparison are compared in several passes over the
// tables. After a failure, Revert can be repeated.
func Revert(ctx context.Context, b bucket.Bucket, dir string, to uint64, undone func(Undone) error, opts *Options) (Reverted, error) {
	v := reversion{bucket: b, dir: dir, undone: undone, options: opts.withDefaults()}
	if v.undone == nil {
		v.undone = func(Undone) error { return nil }
	}
	err := v.run(ctx, to)
	return v.result, err
}

type reversion struct {
	bucket  bucket.Bucket
	dir     string
	undone  func(Undone) error
	options Options
	result  Reverted

	record Record
	target *Manifest
	ends   []manifestEnd // of later manifests, newest first
}

// manifestEnd are the positions after the last entries of a manifest, by shard.
type manifestEnd struct {
	number uint64
	next   []queue.Address
}

func (v *reversion) run(ctx context.Context, to uint64) error {
	var ref Ref
	var err error
	if v.target, ref, err = FindManifest(ctx, v.bucket, to, v.options.Now); err != nil {
		return err
	}
	if v.record, err = CheckQueue(ctx, v.bucket, v.dir, &v.options); err != nil {
		return err
	}
	if err := v.record.revertible(ref); err != nil {
		return err
	}
	if err := v.findEnds(ctx); err != nil {
		return err
	}
	if err := v.appendAll(ctx); err != nil {
		return err
	}
	p, err := OpenPublisher(ctx, v.bucket, v.dir, &v.options)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // closes a reader
	if v.result.Published, err = p.Publish(ctx); err != nil {
		return err
	}
	_, err = p.log.Update(ctx, func(r Record) (Record, error) { return r.reverted(p.owner, ref) })
	return err
}

// findEnds finds the ends of the manifests after the target.
func (v *reversion) findEnds(ctx context.Context) error {
	for m, err := range Manifests(ctx, v.bucket, v.record) {
		if err != nil {
			return err
		}
		if m.Number <= v.target.Number {
			break
		}
		end := manifestEnd{m.Number, make([]queue.Address, v.target.Layout.Shards)}
		for i := range end.next {
			if m.Layout == v.target.Layout {
				end.next[i] = m.Heads[i].End.Next
			}
		}
		v.ends = append(v.ends, end)
	}
	return nil
}

// appendAll appends the differences to all queues.
func (v *reversion) appendAll(ctx context.Context) (err error) {
	unlock, err := lockShards(v.dir, v.target, v.options)
	if err != nil {
		return err
	}
	defer unlock()
	target := openCopy(v.bucket, v.target, v.dir, v.options)
	defer func() { err = errors.CombineErrors(err, target.remove()) }()
	for i := range v.target.Layout.Shards {
		if err := v.append(ctx, target, i); err != nil {
			return err
		}
	}
	return nil
}

// append appends the differences to one queue, and seals it.
func (v *reversion) append(ctx context.Context, target *manifestCopy, i int) (err error) {
	dir := v.target.Layout.Dir(v.dir, i)
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{FS: v.options.FS, Now: v.options.Now})
	if err != nil {
		return err
	}
	defer func() { err = errors.CombineErrors(err, w.Close()) }()
	after, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: v.options.FS})
	if err != nil {
		return err
	}
	defer func() { _ = after.Close() }() // it only reads
	before, err := target.open(ctx, i)
	if err != nil {
		return err
	}
	defer func() { _ = before.Close() }() // it only reads
	c := comparison{before: before, after: after, sameQueue: true, now: v.options.Now()}
	var document []byte
	return c.run(ctx, func(id []byte, d difference) error {
		entry := queue.Record{ID: id, Delete: true}
		if d.before.live {
			if document, err = before.DocumentFor(document[:0], id, d.before.address); err != nil {
				return err
			}
			entry = queue.Record{ID: id, Document: document}
			if d.before.expires != 0 {
				entry.Expires = time.Unix(d.before.expires, 0)
			}
		}
		if _, err := w.Put(entry); err != nil {
			return err
		}
		return v.count(id, d, i)
	})
}

// count adds an undone change of a shard to the result.
func (v *reversion) count(id []byte, d difference, shard int) error {
	if d.before.live {
		v.result.Restored++
	} else {
		v.result.Deleted++
	}
	u := Undone{ID: id, Deleted: !d.after.live}
	for _, end := range v.ends {
		if d.after.address.Compare(end.next[shard]) >= 0 {
			break
		}
		u.Manifest = end.number
	}
	if u.Bad = v.record.IsBad(u.Manifest); !u.Bad {
		v.result.Good++
	}
	return v.undone(u)
}

// revertible returns an error unless a queue can be made equal to a manifest.
func (r Record) revertible(to Ref) error {
	switch {
	case r.IsBad(to.Number):
		return refused("manifest %d is marked as bad: revert to an earlier one", to.Number)
	case !r.SameQueue(to.Number, r.Head.Number):
		return refused("manifest %d is of the queue before: publish --new-generation has replaced it; to serve it, pin it or roll back to it", to.Number)
	case to.Number == r.Head.Number && !r.Frozen:
		return refused("manifest %d is the newest: there is nothing to revert", to.Number)
	}
	return nil
}

// reverted records that the head equals a manifest: those between them are bad, and
// announcing the head ends a rollback.
func (r Record) reverted(owner string, to Ref) (Record, error) {
	switch {
	case r.Owner != owner:
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d", r.Epoch)
	case r.IsBad(r.Head.Number):
		return Record{}, refused("the newest manifest, %d, equals manifest %d but is marked as bad: append a document, then revert again", r.Head.Number, to.Number)
	}
	r = r.clone()
	if r.Head.Number > to.Number+1 {
		r.markBad(Range{to.Number + 1, r.Head.Number - 1})
	}
	r.endBadPins()
	if p := r.PinOf(""); p != nil && r.IsBad(p.To.Number) {
		r.Frozen = true // the pin ends like that of a rollback
	}
	if r.Frozen {
		r.Clean = r.Head.Number
	}
	return r, nil
}

// endBadPins ends the pins and canaries of groups at bad manifests; r is a clone.
func (r *Record) endBadPins() {
	r.Pins = slices.DeleteFunc(r.Pins, func(p Pin) bool { return p.Group != "" && r.IsBad(p.To.Number) })
	r.endBadCanaries()
}
