package queue

import (
	"cmp"
	"io/fs"
	"slices"

	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// request is a document to be fetched from the files of a queue.
type request struct {
	segment.Fetch
	r *Reader
	// tried is an open file that did not have the document, and reason is why.
	tried  *segment.CachedFile
	reason error
	epoch  uint64 // of the open files, from before the directory was listed
}

// fetchFrom appends the document from a file that has its segment.
func (q *request) fetchFrom(s *segment.File) error {
	err := q.From(s, q.r.files.Decoders)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, segment.ErrLost):
		return &LostError{Address: q.At}
	case errors.Is(err, segment.ErrAbsent):
		return absence(s, q.At)
	}
	return err
}

// document appends the document to q.dst. It reads the file that is open for the segment,
// and looks for other files only if that one fails.
func (q *request) document() error {
	files := &q.r.files
	f := files.Get(q.At.Segment)
	if f == nil {
		return q.rescanDocument()
	}
	if f.MayBeSealed() {
		f = files.Renew(f)
	}
	defer func() { files.Put(f) }()
	err := q.fetchFrom(f.File)
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
		q.epoch = q.r.files.Epoch()
		l, err := q.r.listed.look(certain)
		if err != nil {
			l = new(cachedListing) // the segment's own file may still be opened
		}
		if l == used {
			break
		}
		used = l
		failed = q.listedDocument(&l.Listing)
		if isAnswer(failed) {
			return failed
		}
		if isFinal(failed) {
			break
		}
	}
	return &unavailableError{q.At, failed}
}

// isAnswer reports whether a request ends with this result.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, ErrDeleted) || errors.Is(err, ErrOtherPlace) || errors.Is(err, ErrClosed)
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
func (q *request) listedDocument(l *segment.Listing) error {
	var reason, lost error // lost: a repair has noted the document as lost; an older file may have it
	files := l.Candidates(q.r.dir, q.At.Segment)
	newest := true // generation
	hasEntry := false
	for i, c := range files {
		if i > 0 && files[i-1].Run != c.Run {
			if !hasEntry {
				break
			}
			newest, hasEntry = false, false
		}
		verified, err := q.documentIn(c, newest)
		if errors.Is(err, segment.ErrPartial) { // a file that is being copied, or whose footer is damaged
			err = &fs.PathError{Op: "read", Path: c.Path, Err: err}
		}
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
// and keep is true. After an error, HasEntry reports whether the file is a rewrite whose
// tables, verified, have the entry. If the file was tried before, the error is the same.
func (q *request) documentIn(c segment.Candidate, keep bool) (hasEntry bool, err error) {
	if q.r.isClosed() {
		return false, ErrClosed
	}
	files := &q.r.files
	f, err := files.Open(c.Path, c.Run.First, q.tried)
	switch {
	case errors.Is(err, segment.ErrUnchanged):
		f, err = q.tried, q.reason
	case err != nil:
		return false, err
	default:
		defer files.Put(f)
		if c.Run.Generation > 0 && f.Header.Rewrites != c.Run {
			return false, f.Corruption(0, errors.New("header names another rewrite"))
		}
		err = q.fetchFrom(f.File)
		if keep && (isAnswer(err) || isFinal(err)) {
			files.Keep(f, q.At.Segment, q.epoch)
		}
	}
	return err != nil && f.HasEntry(q.At), err
}

// absence returns the reason why a rewrite does not have the address.
func absence(s *segment.File, at Address) error {
	if s.Relocations.IsLost(at) {
		return &LostError{Address: at}
	}
	if i := slices.IndexFunc(s.Relocations.Truncated, func(r segment.AddressRange) bool { return r.Holds(at) }); i >= 0 {
		r := s.Relocations.Truncated[i]
		return &TruncatedError{Position: Position{Queue: s.Header.Queue, Next: at}, From: r.From, To: r.To}
	}
	return &GoneError{Address: at, Settled: Position{Queue: s.Header.Queue, Next: s.Relocations.Settled}}
}
