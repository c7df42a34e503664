package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"docstore/queue"
)

const (
	// compareMemory bounds the memory of a comparison of two states.
	compareMemory = 256 << 20
	// compareBytesPerID bounds the memory of an id: 80 bytes in a map that is at least
	// 7/16 full.
	compareBytesPerID = 190
)

// compareMemoryBytes is compareMemory. Tests change it.
var compareMemoryBytes int64 = compareMemory

// version is the newest entry of an id in a state.
type version struct {
	address queue.Address // zero: the id has no entry
	expires int64         // seconds; 0: never
	live    bool          // the id has a document
}

// difference are the versions of an id that differ.
type difference struct{ before, after version }

// comparison finds the ids whose documents differ between two states of a queue, or of two
// queues.
type comparison struct {
	before, after *queue.Reader
	sameQueue     bool // an address means the same in both
	now           time.Time

	pass, passes uint32
	ids          map[[16]byte]difference
}

// run calls fn for each id whose document is in one state only, or differs in content or
// expiry: first for those with an entry in the state before, in the order of these entries.
// It reads the tables of both states, in several passes if there are many ids, and the
// documents of ids with different entries.
func (c *comparison) run(ctx context.Context, fn func(id []byte, d difference) error) error {
	var entries int64
	for _, r := range []*queue.Reader{c.before, c.after} {
		segments, err := r.Segments()
		if err != nil {
			return err
		}
		for _, s := range segments {
			entries += s.Entries
		}
	}
	c.passes = uint32(entries*compareBytesPerID/compareMemoryBytes + 1)
	for c.pass = range c.passes {
		if err := c.compare(ctx, fn); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) compare(ctx context.Context, fn func(id []byte, d difference) error) error {
	c.ids = map[[16]byte]difference{}
	read := func(r *queue.Reader, set func(*difference, version)) error {
		return r.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
			if id, ok := c.hash(e.ID); ok {
				d := c.ids[id]
				set(&d, c.versionOf(&e))
				c.ids[id] = d
			}
			return nil
		})
	}
	if err := read(c.before, func(d *difference, v version) { d.before = v }); err != nil {
		return err
	}
	if err := read(c.after, func(d *difference, v version) { d.after = v }); err != nil {
		return err
	}
	if err := c.dropEqual(ctx); err != nil {
		return err
	}
	report := func(r *queue.Reader, chosen func(difference) queue.Address) error {
		return r.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
			id, ok := c.hash(e.ID)
			if !ok {
				return nil
			}
			if d, differs := c.ids[id]; differs && chosen(d) == e.Address {
				return fn(e.ID, d)
			}
			return nil
		})
	}
	if err := report(c.before, func(d difference) queue.Address { return d.before.address }); err != nil {
		return err
	}
	return report(c.after, func(d difference) queue.Address {
		if !d.before.address.IsZero() {
			return queue.Address{} // it was reported above
		}
		return d.after.address
	})
}

// hash returns the first half of an id's SHA-256, and whether the id belongs to the pass.
func (c *comparison) hash(id []byte) (first [16]byte, ok bool) {
	sum := sha256.Sum256(id)
	return [16]byte(sum[:16]), binary.LittleEndian.Uint32(sum[16:])%c.passes == c.pass
}

func (c *comparison) versionOf(e *queue.Entry) version {
	v := version{address: e.Address, live: !e.Deleted && (e.Expires.IsZero() || e.Expires.After(c.now))}
	if !e.Expires.IsZero() {
		v.expires = e.Expires.Unix()
	}
	return v
}

// dropEqual removes the ids without a difference.
func (c *comparison) dropEqual(ctx context.Context) error {
	var changed [][16]byte
	for id, d := range c.ids {
		switch {
		case !d.before.live && !d.after.live, c.sameQueue && d.before.address == d.after.address:
			delete(c.ids, id)
		case d.before.live && d.after.live && d.before.expires == d.after.expires:
			changed = append(changed, id)
		}
	}
	slices.SortFunc(changed, func(a, b [16]byte) int { return c.ids[a].before.address.Compare(c.ids[b].before.address) })
	var before, after []byte
	for _, id := range changed {
		d := c.ids[id]
		var err error
		if before, err = c.before.Document(before[:0], d.before.address); err != nil {
			return err
		}
		if after, err = c.after.Document(after[:0], d.after.address); err != nil {
			return err
		}
		if bytes.Equal(before, after) {
			delete(c.ids, id)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
