package queue

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"docstore/queue/codec"
)

// StoredFor is DocumentFor for a caller that can decode the codecs in take: a document
// that needs no other codec is appended in its stored form, for stored.Parse, and asStored
// is true. Any other document is appended decoded. With a Place that is right it reads no
// table.
func (r *Reader) StoredFor(dst []byte, wanted Wanted, take codec.Set) (_ []byte, asStored bool, _ error) {
	if len(wanted.ID) == 0 {
		return dst, false, ErrIDEmpty
	}
	q := request{r: r, fetch: fetch{id: wanted.ID, at: wanted.Address, place: wanted.Place, take: take, dst: dst}}
	err := q.document()
	return q.dst, q.asStored, err
}

// DecodedBytes returns the length of a decoded document without reading it. The length is
// not verified, but at most MaxDocumentBytes.
func (r *Reader) DecodedBytes(a Address) (int, error) {
	q := request{r: r, fetch: fetch{at: a, lengthOnly: true}}
	err := q.document()
	return q.length, err
}

// Dictionary appends the verified dictionary with the hash to dst. The error is
// ErrNoDictionary if no segment in the directory has it.
func (r *Reader) Dictionary(dst []byte, hash codec.DictionaryHash) ([]byte, error) {
	if f := r.files.withDictionary(hash); f != nil {
		content, err := f.dictionary()
		r.files.put(f)
		if err == nil {
			return append(dst, content...), nil
		}
	}
	l, err := r.list()
	if err != nil {
		return dst, err
	}
	var paths []string
	for _, n := range l.numbers {
		for _, suffix := range suffixes {
			paths = append(paths, segmentPath(r.dir, n, suffix))
		}
	}
	for _, run := range l.rewrites {
		paths = append(paths, run.path(r.dir))
	}
	var reason error
	for _, path := range slices.Backward(paths) {
		content, err := r.dictionaryIn(path, hash)
		if content != nil {
			return append(dst, content...), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			reason = err
		}
	}
	return dst, &markedError{mark: ErrNoDictionary, detail: hash.String() + ": not in any segment of this directory", reason: reason}
}

// dictionaryIn returns the dictionary of a file if it has the hash, otherwise nil.
func (r *Reader) dictionaryIn(path string, hash codec.DictionaryHash) ([]byte, error) {
	name, _ := ParseFileName(filepath.Base(path))
	s, err := openSegmentFile(r.options.FS, path, name.First)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.header.dictionary.bytes == 0 || s.header.dictionary.hash != hash {
		return nil, nil
	}
	return s.dictionary()
}
