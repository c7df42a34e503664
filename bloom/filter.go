package bloom

import (
	"io"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
)

// Filter is the filter of one table. Its pages come into memory by way of a
// Manager; until then it answers "maybe".
type Filter struct {
	path    string
	section *io.SectionReader
	hashes  uint64
	keys    uint64
	index   index

	// pages holds the pages in memory, nil for those that are not. Readers load
	// a pointer and use what it points to for as long as they like; only the
	// Manager stores. What a page holds never changes.
	pages  []atomic.Pointer[page]
	broken []bool // pages whose bytes are damaged; guarded by the Manager's mutex

	counters *[counterStripes]counters
}

// counters count answers. A filter has several, each on a cache line of its own
// and away from what look-ups only read; a look-up uses the one that its hash falls
// on, so that processors asking for different keys do not wait for each other.
// Each look-up adds to one number.
type counters struct {
	no     atomic.Uint64
	maybe  atomic.Uint64
	absent atomic.Uint64
	_      [64 - 3*8]byte
}

const counterStripes = 8

// Open reads the trailer and the index of a filter and verifies them. Path is
// the name of the file that the section lies in, for errors. The section is kept
// and read until a Manager has dropped the filter; it must not change.
func Open(path string, section *io.SectionReader) (*Filter, error) {
	f := &Filter{path: path, section: section, counters: new([counterStripes]counters)}
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
	f.hashes, f.keys, f.index = uint64(t.hashes), t.keys, x
	f.pages = make([]atomic.Pointer[page], len(x.entries))
	f.broken = make([]bool, len(x.entries))
	return f, nil
}

// MayContain tells whether the table may contain a key with the given hash. If
// it is false the key was not added; if it is true the table has to be asked.
func (f *Filter) MayContain(h Hash, key []byte) bool {
	count := &f.counters[h.h1%counterStripes]
	if len(f.pages) == 0 {
		count.no.Add(1)
		return false
	}
	switch p := f.pages[f.index.find(key)].Load(); {
	case p == nil:
		count.absent.Add(1)
		return true
	case p.mayContain(h, f.hashes):
		count.maybe.Add(1)
		return true
	default:
		count.no.Add(1)
		return false
	}
}

// FilterStats describe a filter: what it is, what of it is in memory, and what
// it has answered since it was opened.
type FilterStats struct {
	Keys          uint64
	Pages         int
	PageBytes     int64 // of all pages
	IndexBytes    int64 // in memory, always
	ResidentPages int
	ResidentBytes int64 // of the pages in memory

	Probes uint64 // calls of MayContain
	No     uint64 // that spared a look-up in the table
	Absent uint64 // that were answered "maybe" because the page was not in memory
}

// Stats returns the figures of the filter. While look-ups go on, or pages come
// and go, they are of slightly different moments.
func (f *Filter) Stats() FilterStats {
	s := FilterStats{
		Keys:       f.keys,
		Pages:      len(f.pages),
		IndexBytes: f.index.memory(),
	}
	for i := range f.pages {
		size := int64(f.index.entries[i].bytes)
		s.PageBytes += size
		if f.pages[i].Load() != nil {
			s.ResidentPages++
			s.ResidentBytes += size
		}
	}
	for i := range f.counters {
		c := &f.counters[i]
		no, maybe, absent := c.no.Load(), c.maybe.Load(), c.absent.Load()
		s.No += no
		s.Absent += absent
		s.Probes += no + maybe + absent
	}
	return s
}

// load reads page i into memory. The Manager calls it, under its mutex.
func (f *Filter) load(i int) error {
	e := f.index.entries[i]
	b, err := f.read(e.offset, int64(e.bytes))
	if err != nil {
		return err
	}
	if got := checksum.Of(b); got != e.crc {
		f.broken[i] = true
		return f.corrupt(e.offset, errors.Newf("page checksum %08x, want %08x", got, e.crc))
	}
	f.pages[i].Store(decodePage(b))
	return nil
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
