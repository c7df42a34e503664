package table

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/checksum"
	"docstore/internal/invariants"
	"docstore/internal/residency"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// Reader reads a mapped table. Get, GetVerified, GetMany and BlockOf read the mapping, and
// return slices of it, so they and the use of these must be inside Guard or vfs.Guard.
//
// The index is verified when the table is opened, a block when it is first read, or by
// VerifyCached. Bytes read from the mapping after that may be damaged: see blockCopy.
//
// Views share a Reader with Ref and Unref.
type Reader struct {
	Path   string
	Facts  Facts
	Filter *bloom.Filter // nil if it could not be opened: every key may exist then

	env          *Env
	refs         atomic.Int32
	mapping      vfs.Mapping
	data         []byte
	footer       footer
	mean         meanEntry
	randomAccess bool // random access: the kernel does not read ahead
	blockIndex
	headerCRC uint32 // prefix of the checksum of each block
	verified  bitmap
	tags      atomic.Pointer[tags] // nil: none
}

// Env is what the tables of a store have in common.
type Env struct {
	FS                vfs.FS
	Store             StoreID // in the header of each table
	FalsePositiveRate float64 // of the filters
	Logger            *slog.Logger
	// CountIndex and CountBuffer count the memory of the indexes of open tables, and of
	// the buffers of tables that are being written. Negative bytes were released.
	CountIndex, CountBuffer func(bytes int64)
	// Tags bounds the memory of tags, which CountIndex counts, too.
	Tags *TagLimit
}

// Open opens the table described by facts for lookups. Without a filter, which it
// logs, it is only slower.
func Open(env *Env, path string, facts Facts) (*Reader, error) {
	r, err := openReader(env, path, facts, vfs.AdviseRandom)
	if err != nil {
		return nil, err
	}
	if r.Filter, err = r.openFilter(); err != nil {
		env.Logger.Warn("a table is read without its filter", slog.String("table", r.Path), slog.Any("error", err))
	}
	return r, nil
}

// openReader maps the table described by facts and verifies all of it except
// blocks and filter.
func openReader(env *Env, path string, facts Facts, advice vfs.Advice) (r *Reader, err error) {
	r = &Reader{env: env, Path: path, Facts: facts, mean: newMeanEntry(facts), randomAccess: advice == vfs.AdviseRandom}
	file, err := env.FS.Open(r.Path)
	if err != nil {
		return nil, errors.Wrap(err, "lsm: open a table")
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Wrap(err, "lsm: open a table")
	}
	if uint64(info.Size) != facts.FileBytes || facts.FileBytes < headerBytes+footerBytes {
		return nil, r.corrupt(0, "%d bytes, want %d by the manifest", info.Size, facts.FileBytes)
	}
	if r.mapping, err = file.Map(info.Size); err != nil {
		return nil, errors.Wrapf(err, "lsm: map %s", r.Path)
	}
	r.data = r.mapping.Bytes()
	if err = r.Guard(r.open); err == nil {
		err = errors.Wrapf(r.mapping.Advise(advice), "lsm: advise on %s", r.Path)
	}
	if err != nil {
		_ = r.mapping.Close()
		return nil, err
	}
	env.CountIndex(r.indexBytes())
	return r, nil
}

// open decodes and verifies header, footer, properties and index.
func (r *Reader) open() error {
	header := bytes.Clone(r.data[:headerBytes])
	if fault := CheckPreamble(header, magic, version, kindHeader); fault != nil {
		return r.fault(0, fault)
	}
	if number := order.Uint64(header[16:]); number != r.Facts.Number {
		return r.corrupt(0, "the header is of table %d", number)
	}
	if !bytes.Equal(header[24:40], r.env.Store[:]) {
		return r.corrupt(0, "the header is of another store")
	}
	r.headerCRC = headerCRC(header)
	at := len(r.data) - footerBytes
	last := bytes.Clone(r.data[at:])
	if got := order.Uint32(last[8:]); got != r.Facts.FooterCRC {
		return r.corrupt(at, "footer checksum %#x, want %#x by the manifest", got, r.Facts.FooterCRC)
	}
	f, fault := decodeFooter(last, uint64(len(r.data)))
	if fault != nil {
		return r.fault(at, fault)
	}
	r.footer = f
	properties := bytes.Clone(r.section(f.properties))
	if checksum.Of(r.section(f.index)) != f.index.crc || checksum.Of(properties) != f.properties.crc {
		return r.corrupt(int(f.index.offset), "wrong checksum of index or properties")
	}
	p, fault := decodeProperties(properties)
	if fault != nil {
		return r.fault(int(f.properties.offset), fault)
	}
	if p.entries != r.Facts.Entries || p.tombstones != r.Facts.Tombstones ||
		p.firstSequence != r.Facts.FirstSequence || p.lastSequence != r.Facts.LastSequence {
		return r.corrupt(int(f.properties.offset), "properties differ from the manifest")
	}
	return r.loadIndex(p.minKey, p.maxKey)
}

// loadIndex checks that the blocks fill the file up to the index, that their last keys
// fill the index after its records, and that these keys are in ascending order.
func (r *Reader) loadIndex(minKey, maxKey []byte) error {
	var reason string
	at := r.footer.index.offset
	r.blockIndex, reason = parseIndex(r.section(r.footer.index), at, minKey, maxKey)
	if reason != "" {
		return r.corrupt(int(at), "%s", reason)
	}
	r.verified = newBitmap(r.blocks)
	return nil
}

func (r *Reader) section(s section) []byte { return r.data[s.offset : s.offset+s.length] }

// findBlock returns the first block whose last key is at least key, or the number of
// blocks.
func (r *Reader) findBlock(key []byte) int {
	if prefix, covered := r.place(key); covered {
		return r.find(prefix, key)
	}
	if bytes.Compare(key, r.minKey) < 0 {
		return 0
	}
	return r.blocks
}

// blockRange returns the position of a block.
func (r *Reader) blockRange(i int) (start, end uint64) {
	start, end = r.blockOffset(i), r.footer.index.offset
	if i+1 < r.blocks {
		end = r.blockOffset(i + 1)
	}
	return start, end
}

// block returns a block in the mapping, and verifies it at the first call.
func (r *Reader) block(i int) (block, error) {
	if t := r.tags.Load(); !r.verified.has(i) || t != nil && !t.claimed.has(i) {
		if err := r.verify(i); err != nil {
			return block{}, err
		}
	}
	start, end := r.blockRange(i)
	b, fault := parseBlock(r.data[start:end], r.mean.entry)
	if fault != nil {
		return block{}, r.fault(int(start), fault)
	}
	return b, nil
}

// verify verifies a block and fills in its tags.
func (r *Reader) verify(i int) error {
	c := newBlockCopy()
	defer c.release()
	if err := r.read(c, i); err != nil {
		return err
	}
	if t := r.tags.Load(); t != nil {
		t.fill(i, c.block, &r.mean)
	}
	return nil
}

// search looks up a key in the block that find returned for it. A value is returned as
// a slice of the mapping. Absence or a tombstone is confirmed in a copy.
func (r *Reader) search(i int, key []byte) (e kv.Entry, found bool, err error) {
	b, err := r.block(i)
	if err != nil {
		return kv.Entry{}, false, err
	}
	if at, found := b.search(key); found {
		if e, ok := b.entry(at); ok && !e.Tombstone {
			return e, true, nil
		}
	}
	return r.confirmAbsent(i, key)
}

// Guard runs fn, which reads the table. It converts a memory fault to a *ReadError and
// an access out of bounds to a *CorruptionError.
func (r *Reader) Guard(fn func() error) (err error) {
	if fault := vfs.Guard(func() { err = fn() }); fault != nil {
		return r.failed(fault)
	}
	return err
}

// failed converts an error of vfs.Guard to one that names the table.
func (r *Reader) failed(fault error) error {
	if errors.Is(fault, vfs.ErrBounds) {
		return r.corrupt(0, "changed while it was read: %v", fault)
	}
	return errors.WithStack(&ReadError{Path: r.Path, Err: fault})
}

// indexBytes returns the memory of the index.
func (r *Reader) indexBytes() int64 {
	return int64(8*len(r.words) + 4*len(r.buckets) + 4*len(r.verified))
}

// Ref adds a reference.
func (r *Reader) Ref() { r.refs.Add(1) }

// Unref removes a reference. The last one unmaps the table, which no reader may use then.
func (r *Reader) Unref() {
	left := r.refs.Add(-1)
	invariants.References(int64(left), "a table")
	if left == 0 {
		r.close()
	}
}

// close unmaps the table. There must be no readers.
func (r *Reader) close() {
	_ = r.mapping.Close()
	r.dropTags()
	r.env.CountIndex(-r.indexBytes())
}

func (r *Reader) corrupt(offset int, format string, args ...any) error {
	return errors.WithStack(&CorruptionError{Path: r.Path, Offset: int64(offset), Reason: fmt.Sprintf(format, args...)})
}

func (r *Reader) fault(offset int, f *FormatFault) error {
	if f.Newer {
		return errors.Wrapf(ErrNewerVersion, "%s", r.Path)
	}
	return r.corrupt(offset, "%s", f.Reason)
}

func (r *Reader) openFilter() (*bloom.Filter, error) {
	s := r.footer.filter
	return bloom.Open(r.Path, io.NewSectionReader(guardedReader{r.data}, int64(s.offset), int64(s.length)))
}

// Mapped returns the file, as it is in memory. It must be read inside Guard.
func (r *Reader) Mapped() []byte { return r.data }

// Content returns a reader of the file, also if its name was removed.
func (r *Reader) Content() *io.SectionReader {
	return io.NewSectionReader(guardedReader{r.data}, 0, int64(len(r.data)))
}

// Bounds returns the smallest and the greatest key.
func (r *Reader) Bounds() (minKey, maxKey []byte) { return r.minKey, r.maxKey }

// SpoolBytes returns the size of the sections that a Writer keeps in a spool.
func (r *Reader) SpoolBytes() uint64 { return r.footer.filter.length + r.footer.index.length }

// Populate asks the kernel to map the whole table, most of which is in the page cache
// after it was written. That avoids page faults in lookups.
func (r *Reader) Populate() {
	_ = r.mapping.Advise(vfs.AdvisePresent) // best effort
}

// verifyStepBytes is the part of a table that VerifyCached verifies at a time.
const verifyStepBytes = 1 << 20

// VerifyCached verifies the blocks that are in the page cache, as most are after the table
// was written, and fills in their tags, so that lookups need not. At every verifyStepBytes it
// calls step, whose error ends it. The caller must have a reference.
func (r *Reader) VerifyCached(step func() error) error {
	for i := 0; i < r.blocks; {
		begin, end := r.blockRange(i)
		last := i + 1
		for ; last < r.blocks && end-begin < verifyStepBytes; last++ {
			_, end = r.blockRange(last)
		}
		err := r.Guard(func() error {
			if !residency.AllPresent(r.data[begin:end]) {
				return nil
			}
			for ; i < last; i++ {
				if _, err := r.block(i); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = step()
		}
		if err != nil {
			return err
		}
		i = last
	}
	return nil
}

// guardedReader is an io.ReaderAt of a mapping.
type guardedReader struct{ data []byte }

func (g guardedReader) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 || offset >= int64(len(g.data)) {
		return 0, io.EOF
	}
	if fault := vfs.Guard(func() { n = copy(p, g.data[offset:]) }); fault != nil {
		return 0, fault
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
