package bloom

import (
	"io"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/stripe"
)

// Filter is the filter of one table. Its pages come into memory by way of a
// Manager; until then it answers "maybe".
//
// Look-ups take no lock. The invariants:
//
//   - Of what a look-up reads only pages[i] ever changes, and what that points to
//     does not: a look-up loads the pointer once and may use the page for as long
//     as it likes, dropped or not.
//   - Only the Manager stores to pages, under its mutex, and stores nothing but
//     nil or the page whose CRC it has checked. So every answer "no" is true,
//     whichever moment the look-up saw.
//   - Counters are only added to by look-ups, and samples only taken away from by
//     the Manager's Swap: nothing that was counted is lost or counted twice.
type Filter struct {
	path    string
	section *io.SectionReader
	hashes  uint64
	keys    uint64
	index   index
	crc     uint32 // of the index; with keys and pages it tells filters apart

	pages    []atomic.Pointer[page] // nil for those that are not in memory
	samples  []sample               // of the look-ups that asked each page
	counters *[stripe.Count]counters

	// Guarded by the Manager's mutex.
	tallies []tally // what samples have come to
	broken  []bool  // pages whose bytes are damaged
}

// Open reads the trailer and the index of a filter and verifies them. Path is
// the name of the file that the section lies in, for errors. The section is kept
// and read until a Manager has dropped the filter; it must not change.
func Open(path string, section *io.SectionReader) (*Filter, error) {
	f := &Filter{path: path, section: section, counters: new([stripe.Count]counters)}
	size := section.Size()
	if size < trailerBytes {
		return nil, f.corrupt(0, errors.Newf("a filter of %d bytes, want at least %d", size, trailerBytes))
	}
	trailerAt := size - trailerBytes
	b, err := f.read(trailerAt, trailerBytes)
	if err != nil {
		return nil, err
	}
	t, err := decodeTrailer(b)
	if errors.Is(err, ErrNewerVersion) {
		return nil, errors.Wrapf(err, "bloom: open %s", path)
	}
	if err != nil {
		return nil, f.corrupt(trailerAt, err)
	}
	if t.indexBytes > uint64(trailerAt) {
		return nil, f.corrupt(trailerAt, errors.Newf("index of %d bytes in a filter of %d", t.indexBytes, size))
	}
	indexAt := trailerAt - int64(t.indexBytes)
	if b, err = f.read(indexAt, int64(t.indexBytes)); err != nil {
		return nil, err
	}
	if got := checksum.Of(b); got != t.indexCRC {
		return nil, f.corrupt(indexAt, errors.Newf("index checksum %08x, want %08x", got, t.indexCRC))
	}
	x, at, err := decodeIndex(b, t, indexAt)
	if err != nil {
		return nil, f.corrupt(indexAt+int64(at), err)
	}
	f.hashes, f.keys, f.index, f.crc = uint64(t.hashes), t.keys, x, t.indexCRC
	pages := len(x.entries)
	f.pages, f.samples = make([]atomic.Pointer[page], pages), make([]sample, pages)
	f.tallies, f.broken = make([]tally, pages), make([]bool, pages)
	return f, nil
}

// readPage reads page i. A damaged one is marked, so that nobody tries again.
// The Manager calls it, under its mutex.
func (f *Filter) readPage(i int) (*page, error) {
	e := f.index.entries[i]
	b, err := f.read(e.offset, int64(e.bytes))
	if err != nil {
		return nil, err
	}
	if got := checksum.Of(b); got != e.crc {
		f.broken[i] = true
		return nil, f.corrupt(e.offset, errors.Newf("page checksum %08x, want %08x", got, e.crc))
	}
	return decodePage(b), nil
}

// read returns n bytes of the section.
func (f *Filter) read(offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := f.section.ReadAt(b, offset); int64(got) < n {
		if errors.Is(err, io.EOF) {
			return nil, f.corrupt(offset, errors.Newf("the file ends after %d of %d bytes", got, n))
		}
		return nil, errors.Wrapf(err, "bloom: read %s", f.path)
	}
	return b, nil
}

// corrupt returns the error for damage at an offset in the section.
func (f *Filter) corrupt(offset int64, reason error) error {
	_, base, _ := f.section.Outer()
	return &CorruptionError{Path: f.path, Offset: base + offset, Reason: reason.Error()}
}
