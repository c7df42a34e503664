package queue

import "errors"

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
