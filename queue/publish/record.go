package publish

import "github.com/cockroachdb/errors"

const recordFormat = 1

// Record is the state of a collection in a bucket. Each operation returns a changed copy,
// or an error.
type Record struct {
	Format int    `json:"format"`
	Queue  string `json:"queue"` // the queue's id, in hexadecimal digits

	// Epoch grows by one when a publisher takes over, and Owner is its random name. Only
	// the present owner commits.
	Epoch uint64 `json:"epoch"`
	Owner string `json:"owner"`

	Head Ref `json:"head"` // the newest manifest
}

// Ref names a manifest.
type Ref struct {
	Number uint64 `json:"number"` // 0: none
	Digest Digest `json:"digest"` // of the manifest's object
}

// takeOver makes owner the publisher. The publishers before it cannot commit any more.
func (r Record) takeOver(queue, owner string) (Record, error) {
	if r.Queue != "" && r.Queue != queue {
		return Record{}, refused("the bucket holds queue %s, not %s: give the URL of another prefix", r.Queue, queue)
	}
	r.Format, r.Queue, r.Owner = recordFormat, queue, owner
	r.Epoch++
	return r, nil
}

// commit makes a manifest the head. The manifest has the next number and names the head as
// its predecessor.
func (r Record) commit(owner string, m *Manifest, digest Digest) (Record, error) {
	switch {
	case r.Owner != owner:
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d", r.Epoch)
	case m.Number != r.Head.Number+1 || m.Previous != r.Head:
		return Record{}, errors.AssertionFailedf("publish: manifest %d follows %d, and the head is %d", m.Number, m.Previous.Number, r.Head.Number)
	}
	r.Head = Ref{m.Number, digest}
	return r, nil
}
