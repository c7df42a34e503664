package docservice

import "github.com/cockroachdb/errors"

// This file decides when an id is not found. ErrNotFound needs both of:
//
//   - no gap: the index is complete, so that an id without an entry does not exist.
//     The state of the store determines that whenever it changes (knowledge); a
//     lookup loads the result before it asks the index.
//   - evidence from verified bytes that the id has no document.
//
// Every other answer without a document is ErrUnavailable: a client asks another
// server.

// knowledge is what a store knows about the completeness of its index.
type knowledge struct {
	reached   bool // the tail has read the queue to its end since it last stopped
	stopped   bool // a fault stops the tail
	forked    bool // the queue here has another history than the index
	truncated bool // the index holds entries that were taken back
	damaged   bool // a part of the index cannot be read, or is wrong
	headless  bool // the head file cannot be read, so that the queue's end is not known
	stale     bool // the head file is older than MaxStaleness
}

// A gap is the reason why the index may lack a document that the queue holds.
type gap struct {
	reason string
	err    error // the answer for an id that may exist; it matches ErrUnavailable
}

func newGap(reason string) *gap { return &gap{reason, unavailable(errors.New(reason))} }

var (
	gapNotRead   = newGap("the queue has not been read to its end")
	gapStopped   = newGap("the queue cannot be read to its end because of a fault")
	gapForked    = newGap("the queue here has another history than the index")
	gapTruncated = newGap("entries of the queue were taken back, and the index is rebuilt from the queue")
	gapDamaged   = newGap("the index is damaged and is rebuilt from the queue")
	gapHeadless  = newGap("the head file of the queue cannot be read")
	gapStale     = newGap("the copy of the queue is older than the limit for it")
)

// gap returns nil if the index is complete.
func (k knowledge) gap() *gap {
	switch {
	case k.forked:
		return gapForked
	case k.truncated:
		return gapTruncated
	case k.damaged:
		return gapDamaged
	case k.stopped:
		return gapStopped
	case k.headless:
		return gapHeadless
	case !k.reached:
		return gapNotRead
	case k.stale:
		return gapStale
	}
	return nil
}

// evidence is what index and queue say about an id without a document. The bytes of
// the index that it rests on have been verified.
type evidence int

const (
	// noEntry: the index has no entry for the id.
	noEntry evidence = iota
	// noDocument: the entry has expired, or its address holds a delete, or compaction
	// has left its document out and the index includes everything newer.
	noDocument
	// notSettled: compaction has left the document out because of a newer entry, and
	// the tail may not have read that one.
	notSettled
)

// errNotSettled is the answer for evidence notSettled.
var errNotSettled = unavailable(errors.New("the document was superseded by a part of the queue that has not been read"))

// absence returns the answer for an id without a document: ErrNotFound, or an error
// that matches ErrUnavailable and says why the id may have a document.
func absence(e evidence, g *gap) error {
	switch {
	case g != nil:
		return g.err
	case e == notSettled:
		return errNotSettled
	}
	return ErrNotFound
}
