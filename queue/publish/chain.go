package publish

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"io"
	"io/fs"
	"slices"
	"time"

	"docstore/internal/rare"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
)

// chain is the state of the increments that a Publisher adds to a manifest.
type chain struct {
	base     Ref
	number   uint64    // of the newest increment; 0: none
	previous Digest    // of its header
	queues   []growing // by shard
	first    int       // the queue that comes first in the next increment
}

// growing is the open segment of a queue.
type growing struct {
	source  *localQueue
	segment queue.SegmentID
	hash    hash.Hash // of the segment's bytes before end
	end     int64
	sealed  bool
	file    *queue.GrowingSegment // nil: the segment does not exist yet
}

// sealed reports whether a segment is complete: a manifest follows.
func (c *chain) sealed() bool {
	return slices.ContainsFunc(c.queues, func(g growing) bool { return g.sealed })
}

// Extended is the result of Extend.
type Extended struct {
	Bytes int64 // of the segments, in the new increment; 0: there is none
	// Sealed: a segment is complete. Publish commits the next manifest.
	Sealed bool
	// Full: no increment follows before the segments are sealed and published.
	Full bool
	// Reason says why there are no increments; empty: the entries are announced.
	Reason string
}

// Extend announces the entries that were committed to the open segments since the last call,
// as an increment of the announced manifest. It reads the segments only, unless there are new
// entries.
func (p *Publisher) Extend(ctx context.Context) (Extended, error) {
	if p.chain == nil {
		record, err := p.log.Load(ctx)
		if err != nil {
			return Extended{}, err
		}
		switch {
		case record.Owner != p.owner:
			// The publisher of a later epoch has ended the increments of this one for the
			// manifests that it found, not for those that it has committed since.
			return Extended{}, errors.Wrapf(ErrFenced, "epoch %d", record.Epoch)
		case record.Head.Number == 0:
			return Extended{Full: true}, nil
		}
		if reason := record.whyNot(p.queue); reason != "" {
			return Extended{Reason: reason}, nil
		}
		if err := p.openChain(ctx, record.Head); err != nil {
			return Extended{}, err
		}
	}
	c := p.chain
	if sealed := c.sealed(); sealed || c.number >= MaxIncrements {
		return Extended{Sealed: sealed, Full: true}, nil
	}
	parts, err := c.advance(p.options.FS)
	if err != nil {
		return Extended{}, err
	}
	next := Increment{Number: c.number + 1, Parts: parts}
	switch bytes := next.Bytes(); {
	case bytes > maxIncrementBytes:
		return Extended{Sealed: next.complete(), Full: true}, nil // it is published when it is sealed
	case bytes == 0:
		return Extended{}, nil
	}
	if err := p.putIncrement(ctx, &next); err != nil {
		return Extended{}, errors.CombineErrors(err, p.closeChain())
	}
	return Extended{Bytes: next.Bytes(), Sealed: next.complete(), Full: next.complete()}, nil
}

// advance returns the parts of the next increment: the entries committed to the queues, up
// to incrementBytes.
func (c *chain) advance(fsys vfs.FS) ([]Part, error) {
	parts, total := make([]Part, len(c.queues)), int64(0)
	for i, g := range c.queues {
		parts[i] = Part{Segment: g.segment, From: g.end, To: g.end}
	}
	first, least := c.first, rare.Limit[int64]("increment", incrementBytes, 4<<10)
	for n := range c.queues {
		i := (first + n) % len(c.queues)
		if c.first = i; total >= least {
			break // it is the first of the next increment
		}
		g := &c.queues[i]
		if err := g.open(fsys); err != nil {
			return nil, err
		}
		if g.file == nil {
			continue
		}
		end, sealed, err := g.file.Advance(g.end + least - total)
		if err != nil {
			return nil, err
		}
		bytes := end - g.end
		if total > 0 && total+bytes > maxIncrementBytes {
			break
		}
		if bytes > 0 {
			parts[i].To, parts[i].Sealed = end, sealed
			total += bytes
		}
	}
	return parts, nil
}

// Check reads the record, so that Extend stops when the head is not announced any more, and
// continues when it is. A caller of Extend calls it about once a second.
func (p *Publisher) Check(ctx context.Context) (Record, error) {
	record, err := p.log.Load(ctx)
	switch {
	case err != nil:
		return Record{}, err
	case record.Owner != p.owner:
		return record, errors.Wrapf(ErrFenced, "epoch %d", record.Epoch)
	case p.chain != nil && (p.chain.base != record.Head || !record.announcesNext(p.queue)):
		return record, p.closeChain()
	}
	return record, nil
}

// Hold stops the announcements until the next one by hand. The reason is shown to people.
func (p *Publisher) Hold(ctx context.Context, reason string) error {
	_, err := p.log.Update(ctx, func(r Record) (Record, error) { return r.hold(p.owner, reason) })
	return errors.CombineErrors(err, p.closeChain())
}

func (p *Publisher) closeChain() (err error) {
	c := p.chain
	p.chain = nil
	if c == nil {
		return nil
	}
	for _, g := range c.queues {
		if g.file != nil {
			err = errors.CombineErrors(err, g.file.Close())
		}
	}
	return err
}

// openChain reads the state of the increments of a manifest. It returns an error that
// matches ErrRefused if a queue lacks the entries that were announced.
func (p *Publisher) openChain(ctx context.Context, base Ref) error {
	m, err := ReadManifest(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	views, err := p.source.of(m)
	if err != nil {
		return err
	}
	c := &chain{base: base, queues: make([]growing, len(views))}
	for i := range c.queues {
		c.queues[i] = growing{source: &p.source.queues[i], segment: views[i].Heads[0].Sealed + 1, hash: sha256.New()}
	}
	p.chain = c
	if err := p.resumeChain(ctx, m); err != nil {
		return errors.CombineErrors(err, p.closeChain())
	}
	return nil
}

// resumeChain continues after the newest increment.
func (p *Publisher) resumeChain(ctx context.Context, m *Manifest) error {
	c := p.chain
	newest, err := NewestIncrement(ctx, p.bucket, c.base)
	if err != nil || newest == 0 {
		return err
	}
	i, err := NewIncrementReader(p.bucket, m).ReadHeader(ctx, c.base, newest)
	if err != nil {
		return err
	}
	if i.Epoch > p.epoch {
		return errors.Wrapf(ErrFenced, "epoch %d", i.Epoch)
	}
	c.number, c.previous = newest, i.digest
	for n, part := range i.Parts {
		g := &c.queues[n]
		g.sealed = part.Sealed
		if err := g.resume(p.options.FS, part, i); err != nil {
			return err
		}
	}
	return nil
}

// open opens the file of the segment, if it exists.
func (g *growing) open(fsys vfs.FS) error {
	if g.file != nil {
		return nil
	}
	file, err := queue.OpenGrowing(fsys, g.source.path, g.segment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	g.file = file
	return err
}

// resume compares the queue with its part of the last increment, which states the digest of
// all bytes before its end. Where a rewrite has replaced the segment, it cannot: the
// increments end.
func (g *growing) resume(fsys vfs.FS, part Part, last StoredIncrement) error {
	if part.To == 0 {
		return nil
	}
	if err := g.open(fsys); err != nil {
		return err
	}
	if g.file == nil {
		var files []queue.SealedFile
		if r := g.source.reader; r != nil {
			var err error
			if files, err = r.Sealed(); err != nil {
				return err
			}
		}
		if len(files) == 0 || files[len(files)-1].Last < g.segment {
			return lacksIncrements(g.source.path, last)
		}
		g.sealed = true
		return nil
	}
	n, err := io.Copy(g.hash, io.NewSectionReader(g.file, 0, part.To))
	if err != nil {
		return err
	}
	if n != part.To || Digest(g.hash.Sum(nil)) != part.Prefix {
		return lacksIncrements(g.source.path, last)
	}
	g.end = part.To
	return nil
}

func lacksIncrements(dir string, last StoredIncrement) error {
	return refused("the queue in %s does not have the entries that increment %d of manifest %d announced: it is an older copy; run docstore-updater restore into a new directory", dir, last.Number, last.Base.Number)
}

// endEarlier ends the increments of earlier publishers: it takes the next number, so that an
// earlier publisher that continues finds it in use. Then it verifies that the queue has the
// entries.
func (p *Publisher) endEarlier(ctx context.Context, record Record) error {
	if !record.Increments || record.Head.Number == 0 {
		return nil
	}
	for {
		switch err := p.takeNext(ctx, record.Head); {
		case errors.Is(err, errLost):
			continue
		case err != nil:
			return err
		case record.Queue != p.queue:
			return nil // the queue replaces another one
		}
		return p.openChain(ctx, record.Head)
	}
}

// takeNext puts an empty increment, unless a segment is sealed.
func (p *Publisher) takeNext(ctx context.Context, base Ref) error {
	m, err := ReadManifest(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	newest, err := NewestIncrement(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	parts, previous := make([]Part, m.Layout.Shards), Digest{}
	for i, end := range m.ends() {
		parts[i] = Part{Segment: end + 1, Prefix: sha256.Sum256(nil)}
	}
	if newest > 0 {
		last, err := NewIncrementReader(p.bucket, m).ReadHeader(ctx, base, newest)
		if err != nil || last.complete() {
			return err
		}
		for i, part := range last.Parts {
			parts[i] = Part{Segment: part.Segment, From: part.To, To: part.To, Prefix: part.Prefix}
		}
		previous = last.digest
	}
	next := Increment{Base: base, Number: newest + 1, Previous: previous, Parts: parts}
	_, err = p.put(ctx, &next, nil, m.Layout.Shards)
	return err
}

// errLost: an earlier publisher has put the increment of this number.
var errLost = errors.New("publish: an increment of an earlier publisher exists")

// syncConcurrency bounds the segments that are synced at the same time.
const syncConcurrency = 16

// putIncrement puts the next increment, whose parts have no digests yet.
func (p *Publisher) putIncrement(ctx context.Context, next *Increment) error {
	c := p.chain
	data, parts := make([]byte, next.Bytes()), next.Parts
	var group errgroup.Group
	group.SetLimit(syncConcurrency)
	rest := data
	for i := range parts {
		g, part := &c.queues[i], &parts[i]
		bytes := rest[:part.To-part.From]
		rest = rest[len(bytes):]
		if len(bytes) == 0 {
			continue
		}
		group.Go(func() error {
			if _, err := g.file.ReadAt(bytes, g.end); err != nil {
				return err
			}
			g.hash.Write(bytes)
			return g.file.Sync()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range parts {
		parts[i].Prefix = Digest(c.queues[i].hash.Sum(nil))
	}
	next.Base, next.Previous = c.base, c.previous
	digest, err := p.put(ctx, next, data, len(parts))
	if err != nil {
		return err
	}
	c.number, c.previous = next.Number, digest
	for i, part := range parts {
		c.queues[i].end, c.queues[i].sealed = part.To, part.Sealed
	}
	return nil
}

// put creates the object of an increment of so many queues, and returns the digest of its
// header.
func (p *Publisher) put(ctx context.Context, i *Increment, data []byte, queues int) (Digest, error) {
	i.Epoch, i.Nonce, i.Time = p.epoch, rand.Text(), p.options.Now().UTC().Round(time.Millisecond)
	header, digest, err := i.encode()
	if err != nil {
		return Digest{}, err
	}
	object := slices.Concat(header, data)
	err = p.bucket.Put(ctx, incrementName(i.Base, i.Number), bytes.NewReader(object), int64(len(object)))
	if errors.Is(err, bucket.ErrExist) {
		err = p.ownIncrement(ctx, i, queues)
	}
	if err == nil {
		p.log.notifyIncrement(ctx, i.Number)
	}
	return digest, err
}

// ownIncrement returns nil if the existing object is that of i, created by an attempt whose
// response was lost.
func (p *Publisher) ownIncrement(ctx context.Context, i *Increment, queues int) error {
	there, err := bucketIncrements{p.bucket, queues}.ReadHeader(ctx, i.Base, i.Number)
	switch {
	case err != nil:
		return err
	case there.Nonce == i.Nonce:
		return nil
	case there.Epoch > p.epoch:
		return errors.Wrapf(ErrFenced, "epoch %d", there.Epoch)
	}
	return errLost
}
