package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"docstore/queue/codec"
	"docstore/queue/internal/segment"
)

// StoredFor is DocumentFor for a caller that can decode the codecs in take: a document
// that needs no other codec is appended in its stored form, for stored.Parse, and AsStored
// is true. Any other document is appended decoded. With a Place that is right it reads no
// table. The error is ErrOtherPlace if the document does not have the checksum of the Place.
func (r *Reader) StoredFor(dst []byte, wanted Wanted, take codec.Set) (_ []byte, asStored bool, _ error) {
	if len(wanted.ID) == 0 {
		return dst, false, ErrIDEmpty
	}
	q := request{r: r, Fetch: segment.Fetch{ID: wanted.ID, At: wanted.Address, Place: wanted.Place, Take: take, Dst: dst}}
	err := q.document()
	return q.Dst, q.AsStored, err
}

// DecodedBytes returns the length of a decoded document without reading it. The length is
// not verified, but at most MaxDocumentBytes.
func (r *Reader) DecodedBytes(a Address) (int, error) {
	q := request{r: r, Fetch: segment.Fetch{At: a, LengthOnly: true}}
	err := q.document()
	return q.Length, err
}

// BlockCursor returns the cursor that the block of an address has: the position in the input after
// its last record. It is empty if the writer had none.
func (r *Reader) BlockCursor(a Address) ([]byte, error) {
	t := newTailer(r, Position{Next: Address{Segment: a.Segment, Block: a.Block}})
	defer t.close()
	b := &t.blocks[0]
	found, err := t.next(b)
	if err != nil {
		return nil, err
	}
	if !found || b.at.Segment != a.Segment || b.at.Block != a.Block {
		return nil, &unavailableError{a, errors.New("its block is not here")}
	}
	return slices.Clone(b.Cursor()), nil
}

// Dictionary appends the verified dictionary with the hash to dst. The error is
// ErrNoDictionary if no segment in the directory has it.
func (r *Reader) Dictionary(dst []byte, hash codec.DictionaryHash) ([]byte, error) {
	if f := r.files.WithDictionary(hash); f != nil {
		content, err := f.Dictionary()
		r.files.Put(f)
		if err == nil {
			return append(dst, content...), nil
		}
	}
	l, err := r.list()
	if err != nil {
		return dst, err
	}
	var paths []string
	for _, n := range l.Numbers {
		for _, suffix := range segment.Suffixes {
			paths = append(paths, segment.Path(r.dir, n, suffix))
		}
	}
	for _, run := range l.Rewrites {
		paths = append(paths, run.Path(r.dir))
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
	err = fmt.Errorf("%w: %s: not in any segment of this directory", ErrNoDictionary, hash)
	if reason != nil {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return dst, err
}

// HasDictionary reports whether a document with an address, in its stored form, can be decoded
// with the dictionaries of the files that are open: a file may have been replaced by a rewrite
// with another dictionary. It reads no file. The zero hash is that of no dictionary.
func (r *Reader) HasDictionary(at Address, hash codec.DictionaryHash) bool {
	if hash == (codec.DictionaryHash{}) {
		return true
	}
	if f := r.files.Get(at.Segment); f != nil {
		has := f.Header.Dictionary.Hash == hash
		r.files.Put(f)
		if has {
			return true
		}
	}
	f := r.files.WithDictionary(hash)
	if f != nil {
		r.files.Put(f)
	}
	return f != nil
}

// dictionaryIn returns the dictionary of a file if it has the hash, otherwise nil.
func (r *Reader) dictionaryIn(path string, hash codec.DictionaryHash) ([]byte, error) {
	name, _ := ParseFileName(filepath.Base(path))
	s, err := segment.Open(r.options.FS, path, name.First)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if s.Header.Dictionary.Bytes == 0 || s.Header.Dictionary.Hash != hash {
		return nil, nil
	}
	return s.Dictionary()
}
