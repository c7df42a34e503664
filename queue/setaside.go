package queue

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// AsideSuffix ends the name of a segment's file that a server of a copy has set
// aside because of damage, so that it is copied again. Such a file is no part of
// the queue, but until the new copy has come its sound documents are still read.
const AsideSuffix = ".bad"

// documentAside is document from the files that were set aside.
func (r *Reader) documentAside(dst, id []byte, a Address, take CodecSet) ([]byte, bool, error) {
	l, err := r.list()
	if err != nil {
		return dst, false, ErrUnavailable
	}
	var paths []string
	for _, name := range l.aside {
		n, _ := asideName(name)
		if n.First <= a.Segment && a.Segment <= n.Last && strings.HasSuffix(name, AsideSuffix) {
			paths = append(paths, filepath.Join(r.dir, name))
		}
	}
	return r.documentIn(paths, r.files.keep, dst, id, a, take)
}

// documentIn is document from any of some files. The one that has it is given to
// done.
func (r *Reader) documentIn(paths []string, done func(*cachedFile), dst, id []byte, a Address, take CodecSet) ([]byte, bool, error) {
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
		if err == nil || errors.Is(err, ErrDeleted) {
			done(f)
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
	for _, run := range l.covering(a.Segment) {
		paths = append(paths, run.path(r.dir))
	}
	if out, asStored, err := r.documentIn(paths, r.files.put, dst, id, a, take); !errors.Is(err, ErrUnavailable) {
		return out, asStored, err
	}
	if out, asStored, err := r.documentAside(dst, id, a, take); !errors.Is(err, ErrUnavailable) {
		return out, asStored, err
	}
	return dst, false, unavailable(a, lost)
}
