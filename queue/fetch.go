package queue

import (
	"cmp"
	"io/fs"
	"slices"

	"github.com/cockroachdb/errors"
)

// request is a document to be fetched from the files of a queue.
type request struct {
	fetch
	r *Reader
	// tried is an open file that did not have the document, and reason is why.
	tried  *cachedFile
	reason error
}

// fetchFrom appends the document from a file that has its segment.
func (q *request) fetchFrom(s *segmentFile) error {
	err := q.from(s, q.r.files.decoders)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLost):
		return &LostError{Address: q.at}
	case errors.Is(err, errAbsent):
		return absence(s, q.at)
	}
	return err
}

// document appends the document to q.dst. It reads the file that is open for the segment,
// and looks for other files only if that one fails.
func (q *request) document() error {
	files := &q.r.files
	f := files.get(q.at.Segment)
	if f == nil {
		return q.rescanDocument()
	}
	if f.mayBeSealed() {
		f = files.renew(f)
	}
	defer func() { files.put(f) }()
	err := q.fetchFrom(f.segmentFile)
	if isAnswer(err) {
		return err
	}
	q.tried, q.reason = f, err
	return q.rescanDocument()
}

// rescanDocument reads the document from the files that are in the directory now. It lists
// the directory again only if the kept listing leads to no answer and may be out of date.
func (q *request) rescanDocument() error {
	var used *cachedListing
	var failed error
	for _, certain := range []bool{false, true} {
		l, err := q.r.listed.look(certain)
		if err != nil {
			l = new(cachedListing) // the segment's own file may still be opened
		}
		if l == used {
			break
		}
		used = l
		failed = q.listedDocument(&l.listing)
		if isAnswer(failed) {
			return failed
		}
		if isFinal(failed) {
			break
		}
	}
	return unavailable(q.at, failed)
}

// isAnswer reports whether a request ends with this result.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, ErrDeleted) || errors.Is(err, ErrClosed)
}

// isFinal reports whether an error is a verified statement about the address, so that no
// older file has to be read.
func isFinal(err error) bool {
	var gone *GoneError
	return errors.As(err, &gone) || isLost(err) || errors.Is(err, ErrTruncated)
}

func isLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}

// listedDocument reads the document from the files of a listing, the highest generation
// first.
//
// An older file may have a document that a rewrite has left out, and its delete may be in
// no file any more. So older files are read only if every rewrite of a higher generation
// verifiably has the entry and merely its document is damaged. Otherwise the document is
// unavailable until the rewrite is copied again.
func (q *request) listedDocument(l *listing) error {
	var reason, lost error // lost: a repair has noted the document as lost; an older file may have it
	files := l.candidates(q.r.dir, q.at.Segment)
	newest := true // generation
	hasEntry := false
	for i, c := range files {
		if i > 0 && files[i-1].run != c.run {
			if !hasEntry {
				break
			}
			newest, hasEntry = false, false
		}
		verified, err := q.documentIn(c, newest)
		switch {
		case isAnswer(err):
			return err
		case isLost(err):
			lost, verified = err, true
		case isFinal(err):
			return cmp.Or(lost, err)
		}
		hasEntry = hasEntry || verified
		reason = preferredReason(reason, err)
	}
	return cmp.Or(lost, reason)
}

// preferredReason returns which of two reasons to report: the later one, unless it is only that a
// file does not exist.
func preferredReason(before, err error) error {
	if before != nil && errors.Is(err, fs.ErrNotExist) {
		return before
	}
	return err
}

// documentIn reads the document from a file, which the cache keeps if it has the answer
// and keep is true. After an error, hasEntry reports whether the file is a rewrite whose
// tables, verified, have the entry. If the file was tried before, the error is the same.
func (q *request) documentIn(c candidate, keep bool) (hasEntry bool, err error) {
	if q.r.isClosed() {
		return false, ErrClosed
	}
	files := &q.r.files
	f, err := files.open(c.path, c.run.first, q.tried)
	switch {
	case errors.Is(err, errUnchanged):
		f, err = q.tried, q.reason
	case err != nil:
		return false, err
	default:
		defer files.put(f)
		if c.run.generation > 0 && f.header.rewrites != c.run {
			return false, f.corruption(0, errors.New("header names another rewrite"))
		}
		err = q.fetchFrom(f.segmentFile)
		if keep && (isAnswer(err) || isFinal(err)) {
			files.keep(f, q.at.Segment)
		}
	}
	return err != nil && f.hasEntry(q.at), err
}

// absence returns the reason why a rewrite does not have the address.
func absence(s *segmentFile, at Address) error {
	if s.relocations.isLost(at) {
		return &LostError{Address: at}
	}
	if i := slices.IndexFunc(s.relocations.truncated, func(r addressRange) bool { return r.holds(at) }); i >= 0 {
		r := s.relocations.truncated[i]
		return &TruncatedError{Position: Position{Queue: s.header.queue, Next: at}, From: r.from, To: r.to}
	}
	return &GoneError{Address: at, Settled: Position{Queue: s.header.queue, Next: s.relocations.settled}}
}
