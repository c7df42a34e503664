package queue

import (
	"errors"
	"io/fs"
	"slices"
)

// AsideSuffix ends the name of a segment's file that a server of a copy has set
// aside because of damage, so that it is copied again. Such a file is no part of
// the queue, but until the new copy has come its sound documents are still read.
const AsideSuffix = ".bad"

// documentAside is document from the files that were set aside.
func (r *Reader) documentAside(dst, id []byte, a Address, take CodecSet) ([]byte, bool, error) {
	for _, suffix := range []string{sealedSuffix + AsideSuffix, openSuffix + AsideSuffix} {
		f, err := r.files.open(a.Segment, suffix, nil)
		if err != nil {
			continue
		}
		out, asStored, err := f.fetch(dst, id, a, f.decoder, take)
		if err == nil || errors.Is(err, ErrDeleted) {
			r.files.keep(f)
			return out, asStored, err
		}
		r.files.put(f)
	}
	return dst, false, ErrUnavailable
}

// documentLost is document for what a repair has noted as lost. A copy of the
// queue may have the file as it was before it was damaged.
func (r *Reader) documentLost(dst, id []byte, a Address, take CodecSet, lost error) ([]byte, bool, error) {
	l, err := r.list()
	if err != nil {
		return dst, false, unavailable(a, lost)
	}
	paths := []string{segmentPath(r.dir, a.Segment, sealedSuffix), segmentPath(r.dir, a.Segment, openSuffix)}
	for _, run := range slices.Backward(l.covering(a.Segment)) {
		paths = append(paths, run.path(r.dir))
	}
	for _, path := range paths {
		s, err := openSegmentFile(r.options.FS, path, a.Segment)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				r.options.Logger.Debug("no document from a file that was replaced", "path", path, "error", err)
			}
			continue
		}
		f, err := r.files.admit(s)
		if err != nil {
			continue
		}
		out, asStored, err := f.fetch(dst, id, a, f.decoder, take)
		r.files.put(f)
		if err == nil || errors.Is(err, ErrDeleted) {
			return out, asStored, err
		}
	}
	if out, asStored, err := r.documentAside(dst, id, a, take); !errors.Is(err, ErrUnavailable) {
		return out, asStored, err
	}
	return dst, false, unavailable(a, lost)
}
