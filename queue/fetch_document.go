package queue

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/errors"
)

// request is a document to be fetched: at an address, of an id unless that is nil, in
// its stored form if its codec is in take.
type request struct {
	id   []byte
	at   Address
	take CodecSet
}

// document appends a document to dst and tells whether that is its stored form. It
// takes the file that is open for the segment, and looks for another one only if that
// does not answer.
func (r *Reader) document(dst, id []byte, a Address, take CodecSet) ([]byte, bool, error) {
	f := r.files.get(a.Segment)
	if f == nil {
		return r.documentAnew(dst, &request{id, a, take}, nil, nil)
	}
	if f.mayBeSealed() {
		f = r.files.renew(f)
	}
	if take != 0 && f.mapping != nil {
		if out, ok := f.appendMapped(dst, id, a, take); ok {
			r.files.put(f)
			return out, true, nil
		}
	}
	out, asStored, err := f.fetch(dst, id, a, r.files.decoders, take)
	if err == nil || errors.Is(err, ErrDeleted) {
		r.files.put(f)
		return out, asStored, err
	}
	defer r.files.put(f)
	return r.documentAnew(dst, &request{id, a, take}, f, err)
}

// documentAnew is document by the files that the directory has now: no file is open for
// the segment, or tried is and failed for the reason. The listing of the directory is
// made again only if the kept one leads to no answer and may be out of date.
func (r *Reader) documentAnew(dst []byte, q *request, tried *cachedFile, reason error) ([]byte, bool, error) {
	var looked *keptListing
	var failed error
	for _, certain := range []bool{false, true} {
		l, err := r.listed.look(certain)
		if err != nil {
			l = new(keptListing) // the segment's own file may still be opened
		}
		if l == looked {
			break
		}
		looked = l
		out, asStored, err := r.documentListed(&l.listing, dst, q, tried, reason)
		if err == nil || errors.Is(err, ErrDeleted) || errors.Is(err, ErrClosed) {
			return out, asStored, err
		}
		failed = err
		if isFinal(err) {
			break
		}
	}
	return dst, false, unavailable(q.at, failed)
}

// isFinal tells whether an error says what became of a document, so that no other file
// has to be asked.
func isFinal(err error) bool {
	var gone *GoneError
	var lost *LostError
	return errors.As(err, &gone) || errors.As(err, &lost)
}

// documentListed is document from the files of a listing: the rewrites, the highest
// generation first, the segment's own files, and those that were set aside.
func (r *Reader) documentListed(l *listing, dst []byte, q *request, tried *cachedFile, reason error) (out []byte, asStored bool, err error) {
	for _, run := range l.covering(q.at.Segment) {
		out, asStored, err = r.documentFrom(run.path(r.dir), run, true, dst, q, tried, reason)
		var lost *LostError
		switch {
		case errors.As(err, &lost):
			return r.documentLost(l, dst, q, err)
		case err == nil, errors.Is(err, ErrDeleted), isFinal(err):
			return out, asStored, err
		}
		reason = worse(reason, err)
	}
	there := false
	for i, suffix := range suffixes {
		if r.isClosed() {
			return dst, false, ErrClosed
		}
		if i == 2 && there {
			break
		}
		run := rewriteRun{first: q.at.Segment, last: q.at.Segment}
		out, asStored, err = r.documentFrom(segmentPath(r.dir, q.at.Segment, suffix), run, true, dst, q, tried, reason)
		if err == nil || errors.Is(err, ErrDeleted) {
			return out, asStored, err
		}
		there = there || !errors.Is(err, fs.ErrNotExist)
		reason = worse(reason, err)
	}
	return r.documentAside(l, true, dst, q, reason)
}

// worse is which of two reasons to report: the later one, unless it is only that a file
// is not there.
func worse(before, err error) error {
	if before != nil && errors.Is(err, fs.ErrNotExist) {
		return before
	}
	return err
}

// documentFrom is document from the file with a path, of the segments of a run. If it is
// the one that was tried already, the error is the reason why that failed. The cache
// keeps the file if it knows the answer and keep is true.
func (r *Reader) documentFrom(path string, run rewriteRun, keep bool, dst []byte, q *request, tried *cachedFile, reason error) ([]byte, bool, error) {
	f, err := r.files.open(path, run.first, tried)
	if errors.Is(err, errUnchanged) {
		return dst, false, reason
	}
	if err != nil {
		return dst, false, err
	}
	defer r.files.put(f)
	if run.generation > 0 && f.header.rewrites != run {
		return dst, false, f.corruption(0, errors.New("header is that of another rewrite"))
	}
	out, asStored, err := f.fetch(dst, q.id, q.at, r.files.decoders, q.take)
	if keep && (err == nil || errors.Is(err, ErrDeleted) || isFinal(err)) {
		r.files.keep(f, q.at.Segment)
	}
	return out, asStored, err
}

// documentAside is document from the files that were set aside.
func (r *Reader) documentAside(l *listing, keep bool, dst []byte, q *request, reason error) ([]byte, bool, error) {
	for _, name := range l.aside {
		n, _ := asideName(name)
		if q.at.Segment < n.First || n.Last < q.at.Segment || !strings.HasSuffix(name, AsideSuffix) {
			continue
		}
		run := rewriteRun{n.First, n.Last, n.Generation}
		out, asStored, err := r.documentFrom(filepath.Join(r.dir, name), run, keep, dst, q, nil, nil)
		if err == nil || errors.Is(err, ErrDeleted) {
			return out, asStored, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			r.options.Logger.Debug("no document from a file that was set aside", "path", name, "error", err)
		}
	}
	return dst, false, reason
}

// documentLost is document for what a repair has noted as lost. A copy of the queue may
// have the file as it was before it was damaged.
func (r *Reader) documentLost(l *listing, dst []byte, q *request, lost error) ([]byte, bool, error) {
	n := q.at.Segment
	runs := append([]rewriteRun{{n, n, 0}, {n, n, 0}}, l.covering(n)...)
	for i, run := range runs {
		path := run.path(r.dir)
		if i < 2 {
			path = segmentPath(r.dir, n, suffixes[i])
		}
		out, asStored, err := r.documentFrom(path, run, false, dst, q, nil, nil)
		if err == nil || errors.Is(err, ErrDeleted) {
			return out, asStored, err
		}
	}
	return r.documentAside(l, true, dst, q, lost)
}
