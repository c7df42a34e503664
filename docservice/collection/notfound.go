package collection

import (
	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/docservice/readiness"
)

// This file alone decides when an id is not found. docservice.ErrNotFound requires both:
//
//   - no gap: the index is complete, so that an id without an entry does not exist.
//     The store computes the gap whenever its state changes (knowledge); a lookup
//     loads it before it reads the index.
//   - evidence from verified bytes that the id has no document.
//
// Every other answer without a document is docservice.ErrUnavailable, and the client asks
// another server.

// knowledge is the state that decides whether the index is complete.
type knowledge struct {
	reached    bool // the tail has read the queue to its end since it last stopped
	stopped    bool // a fault stops the tail
	forked     bool // the queue here and the index have different histories
	truncated  bool // the index holds entries that were truncated
	damaged    bool // the index is damaged or unreadable
	headUnread bool // reading the head file failed: the queue's end is unknown
	stale      bool // the head file is older than MaxStaleness
	behind     bool // entries are known to exist that have not arrived (SetBehind)
	within     bool // the tail has read a rewrite, and not what superseded the entries that it lacks
}

// A gap is the reason why the index may lack a document that the queue holds.
type gap struct {
	state  readiness.State
	reason string
	err    error // the error for an id that may exist; it matches docservice.ErrUnavailable
}

func newGap(state readiness.State, reason string) *gap {
	return &gap{state, reason, unavailable(errors.New(reason))}
}

var (
	gapNotRead    = newGap(readiness.Indexing, "the queue has not been read to its end")
	gapStopped    = newGap(readiness.Faulted, "the queue cannot be read to its end because of a fault")
	gapForked     = newGap(readiness.Faulted, "the queue and the index have different histories")
	gapTruncated  = newGap(readiness.Rebuilding, "entries of the queue were truncated; the index is rebuilt from the queue")
	gapDamaged    = newGap(readiness.Rebuilding, "the index is damaged and is rebuilt from the queue")
	gapHeadUnread = newGap(readiness.Faulted, "the head file of the queue cannot be read")
	gapStale      = newGap(readiness.Stale, "the copy of the queue is older than the limit for it")
	gapWithin     = newGap(readiness.Indexing, "compaction has left out entries for later ones that have not been read")
	gapBehind     = newGap(readiness.WaitingForFiles, "announced entries have not arrived")
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
	case k.headUnread:
		return gapHeadUnread
	case k.behind:
		return gapBehind
	case k.within:
		return gapWithin
	case !k.reached:
		return gapNotRead
	case k.stale:
		return gapStale
	}
	return nil
}

// evidence is the information of index and queue about an id without a document. It rests
// on verified bytes of the index.
type evidence int

const (
	// noEntry: the index has no entry for the id.
	noEntry evidence = iota
	// noDocument: the entry has expired, or its address holds a delete, or compaction left
	// the document out and the index includes all later entries.
	noDocument
	// notSettled: compaction left the document out because of a later entry that the tail
	// may not have read yet.
	notSettled
)

// errNotSettled is the error for notSettled.
var errNotSettled = unavailable(errors.New("the document was superseded by a part of the queue that has not been read"))

// absence returns the error for an id without a document: docservice.ErrNotFound, or an error
// that matches docservice.ErrUnavailable and says why the document may exist.
func absence(e evidence, g *gap) error {
	switch {
	case g != nil:
		return g.err
	case e == notSettled:
		return errNotSettled
	}
	return docservice.ErrNotFound
}
