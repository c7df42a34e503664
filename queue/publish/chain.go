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

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// chain is the state of the increments that a Publisher adds to a manifest.
type chain struct {
	base     Ref
	segment  queue.SegmentID
	number   uint64    // of the newest increment; 0: none
	previous Digest    // of its header
	hash     hash.Hash // of the segment's bytes before end
	end      int64
	sealed   bool
	file     *queue.GrowingSegment // nil: the segment does not exist yet
}

// Extended is the result of Extend.
type Extended struct {
	Bytes int64 // of the segment, in the new increment; 0: there is none
	// Sealed: the segment is complete. Publish commits the next manifest.
	Sealed bool
	// Full: no increment follows before the segment is sealed and published.
	Full bool
	// Reason says why there are no increments; empty: the entries are announced.
	Reason string
}

// Extend announces the entries that were committed to the open segment since the last call,
// as an increment of the announced manifest. It reads the segment only, unless there are new
// entries.
func (p *Publisher) Extend(ctx context.Context) (Extended, error) {
	if p.chain == nil {
		record, err := p.log.Load(ctx)
		if err != nil {
			return Extended{}, err
		}
		if record.Head.Number == 0 {
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
	if c.sealed || c.number >= MaxIncrements {
		return Extended{Sealed: c.sealed, Full: true}, nil
	}
	if err := c.open(p.options.FS, p.dir); err != nil || c.file == nil {
		return Extended{}, err
	}
	end, sealed, err := c.file.Advance(c.end + incrementBytes)
	switch {
	case err != nil:
		return Extended{}, err
	case end-c.end > maxIncrementBytes:
		return Extended{Sealed: sealed, Full: true}, nil // it is published when it is sealed
	case end <= c.end:
		return Extended{}, nil
	}
	from := c.end
	if err := p.putIncrement(ctx, end, sealed); err != nil {
		return Extended{}, errors.CombineErrors(err, p.closeChain())
	}
	return Extended{Bytes: end - from, Sealed: sealed, Full: sealed}, nil
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

func (p *Publisher) closeChain() error {
	c := p.chain
	p.chain = nil
	if c == nil || c.file == nil {
		return nil
	}
	return c.file.Close()
}

// openChain reads the state of the increments of a manifest. It returns an error that
// matches ErrRefused if the queue lacks the entries that were announced.
func (p *Publisher) openChain(ctx context.Context, base Ref) error {
	m, err := ReadManifest(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	c := &chain{base: base, segment: m.Head.Sealed + 1, hash: sha256.New()}
	newest, err := newestIncrement(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	if newest > 0 {
		i, digest, err := readIncrementHeader(ctx, p.bucket, base, newest)
		if err != nil {
			return err
		}
		if i.Epoch > p.epoch {
			return errors.Wrapf(ErrFenced, "epoch %d", i.Epoch)
		}
		c.number, c.previous, c.sealed = newest, digest, i.Sealed
		if err := p.resume(c, i); err != nil {
			return err
		}
	}
	p.chain = c
	return nil
}

// open opens the file of the segment, if it exists.
func (c *chain) open(fsys vfs.FS, dir string) error {
	if c.file != nil {
		return nil
	}
	file, err := queue.OpenGrowing(fsys, dir, c.segment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c.file = file
	return err
}

// resume compares the queue with the last increment, which states the digest of all bytes
// before its end. Where a rewrite has replaced the segment, it cannot: the increments end.
func (p *Publisher) resume(c *chain, last *Increment) error {
	if last.To == 0 {
		return nil
	}
	if err := c.open(p.options.FS, p.dir); err != nil {
		return err
	}
	if c.file == nil {
		files, err := p.reader.Sealed()
		if err != nil {
			return err
		}
		if len(files) == 0 || files[len(files)-1].Last < c.segment {
			return lacksIncrements(p.dir, last)
		}
		c.sealed = true
		return nil
	}
	n, err := io.Copy(c.hash, io.NewSectionReader(c.file, 0, last.To))
	if err != nil {
		return err
	}
	if n != last.To || Digest(c.hash.Sum(nil)) != last.Prefix {
		return lacksIncrements(p.dir, last)
	}
	c.end = last.To
	return nil
}

func lacksIncrements(dir string, last *Increment) error {
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

// takeNext puts an empty increment, unless the segment is sealed.
func (p *Publisher) takeNext(ctx context.Context, base Ref) error {
	m, err := ReadManifest(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	newest, err := newestIncrement(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	last, digest := &Increment{Segment: m.Head.Sealed + 1, Prefix: sha256.Sum256(nil)}, Digest{}
	if newest > 0 {
		if last, digest, err = readIncrementHeader(ctx, p.bucket, base, newest); err != nil || last.Sealed {
			return err
		}
	}
	_, err = p.put(ctx, &Increment{
		Base: base, Number: newest + 1, Previous: digest, Segment: last.Segment, From: last.To, To: last.To, Prefix: last.Prefix,
	}, nil)
	return err
}

// errLost: an earlier publisher has put the increment of this number.
var errLost = errors.New("publish: an increment of an earlier publisher exists")

// putIncrement puts the segment's bytes from the chain's end to another one.
func (p *Publisher) putIncrement(ctx context.Context, end int64, sealed bool) error {
	c := p.chain
	data := make([]byte, end-c.end)
	if len(data) > 0 {
		if _, err := c.file.ReadAt(data, c.end); err != nil {
			return err
		}
		if err := c.file.Sync(); err != nil {
			return err
		}
	}
	c.hash.Write(data)
	digest, err := p.put(ctx, &Increment{
		Base: c.base, Number: c.number + 1, Previous: c.previous, Segment: c.segment, From: c.end, To: end, Prefix: Digest(c.hash.Sum(nil)), Sealed: sealed,
	}, data)
	if err != nil {
		return err
	}
	c.number, c.previous, c.end, c.sealed = c.number+1, digest, end, sealed
	return nil
}

// put creates the object of an increment and returns the digest of its header.
func (p *Publisher) put(ctx context.Context, i *Increment, data []byte) (Digest, error) {
	i.Format, i.Epoch, i.Nonce, i.Time = incrementFormat, p.epoch, rand.Text(), p.options.Now().UTC().Round(time.Millisecond)
	header, digest, err := i.encode()
	if err != nil {
		return Digest{}, err
	}
	object := slices.Concat(header, data)
	err = p.bucket.Put(ctx, incrementName(i.Base, i.Number), bytes.NewReader(object), int64(len(object)))
	if errors.Is(err, bucket.ErrExist) {
		err = p.ownIncrement(ctx, i)
	}
	if err == nil {
		p.log.notifyIncrement(ctx, i.Number)
	}
	return digest, err
}

// ownIncrement returns nil if the existing object is that of i, created by an attempt whose
// response was lost.
func (p *Publisher) ownIncrement(ctx context.Context, i *Increment) error {
	there, _, err := readIncrementHeader(ctx, p.bucket, i.Base, i.Number)
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
