package bloom

import (
	"io"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/stripe"
)

// Filter is the filter of one table. A Manager loads its pages into memory; without a
// page the filter answers "maybe". Lookups take no lock.
type Filter struct {
	// Invariants:
	//
	//   - Lookups read only immutable data and the pointers in pages. A lookup loads a
	//     pointer once and may use the page even after it was dropped.
	//   - Only the Manager stores to pages, under its mutex: nil or a page with a valid
	//     CRC. So every answer "no" is correct.
	//   - Lookups only add to counters and samples; only the Manager resets samples,
	//     with Swap. So no lookup is lost or counted twice.

	path    string
	section *io.SectionReader
	hashes  uint64
	keys    uint64
	index   index
	crc     uint32 // of the index; part of the filter's identity

	pages    []atomic.Pointer[page] // nil if not in memory
	samples  []sample               // lookups of each page since the last pass
	counters *[stripe.Count]counters

	// Guarded by the Manager's mutex.
	tallies []tally // accumulated samples
	broken  []bool  // damaged pages
}

// Open reads and verifies the trailer and the index of a filter. path names the file of
// the section in errors. The section is read until the Manager drops the filter, and
// must not change.
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

// readPage reads page i. It marks a damaged page, which is then never read again.
// Called under the Manager's mutex.
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

// corrupt returns a CorruptionError for an offset in the section.
func (f *Filter) corrupt(offset int64, reason error) error {
	_, base, _ := f.section.Outer()
	return &CorruptionError{Path: f.path, Offset: base + offset, Reason: reason.Error()}
}
