package lsm

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
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// tableReader reads a mapped table. Its methods read the mapping, and some return
// slices of it, so they must be called inside guard or vfs.Guard.
//
// The index is verified when the table is opened, a block when it is first read. Bytes
// read from the mapping after that may be damaged: see blockCopy.
//
// Views share it: it is closed when none references it.
type tableReader struct {
	env          *tableEnv
	path         string
	facts        tableFacts
	filter       *bloom.Filter // nil if it could not be opened: every key may exist then
	refs         atomic.Int32
	mapping      vfs.Mapping
	data         []byte
	footer       footer
	minKey       []byte
	maxKey       []byte
	mean         meanEntry
	randomAccess bool // random access: the kernel does not read ahead
	tableIndex
	headerCRC uint32          // prefix of the checksum of each block
	verified  []atomic.Uint32 // a bit per block
}

// tableEnv is what the tables of a store have in common.
type tableEnv struct {
	fs                vfs.FS
	id                storeID // in the header of each table
	falsePositiveRate float64 // of the filters
	logger            *slog.Logger
	// countIndex and countBuffer count the memory of the indexes of open tables, and of
	// the buffers of tables that are being written. Negative bytes were released.
	countIndex, countBuffer func(bytes int64)
}

// openTable opens the table described by facts for lookups. Without a filter, which it
// logs, it is only slower.
func openTable(env *tableEnv, path string, facts tableFacts) (*tableReader, error) {
	r, err := openTableReader(env, path, facts, vfs.AdviseRandom)
	if err != nil {
		return nil, err
	}
	if r.filter, err = r.openFilter(); err != nil {
		env.logger.Warn("a table is read without its filter", slog.String("table", r.path), slog.Any("error", err))
	}
	return r, nil
}

// openTableReader maps the table described by facts and verifies all of it except
// blocks and filter.
func openTableReader(env *tableEnv, path string, facts tableFacts, advice vfs.Advice) (r *tableReader, err error) {
	r = &tableReader{env: env, path: path, facts: facts, mean: newMeanEntry(facts), randomAccess: advice == vfs.AdviseRandom}
	file, err := env.fs.Open(r.path)
	if err != nil {
		return nil, errors.Wrap(err, "lsm: open a table")
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Wrap(err, "lsm: open a table")
	}
	if uint64(info.Size) != facts.fileBytes || facts.fileBytes < tableHeaderBytes+tableFooterBytes {
		return nil, r.corrupt(0, "%d bytes, want %d by the manifest", info.Size, facts.fileBytes)
	}
	if r.mapping, err = file.Map(info.Size); err != nil {
		return nil, errors.Wrapf(err, "lsm: map %s", r.path)
	}
	r.data = r.mapping.Bytes()
	if err = r.guard(r.open); err == nil {
		err = errors.Wrapf(r.mapping.Advise(advice), "lsm: advise on %s", r.path)
	}
	if err != nil {
		_ = r.mapping.Close()
		return nil, err
	}
	env.countIndex(r.indexBytes())
	return r, nil
}

// open decodes and verifies header, footer, properties and index.
func (r *tableReader) open() error {
	header := bytes.Clone(r.data[:tableHeaderBytes])
	if fault := checkPreamble(header, tableMagic, tableVersion, kindTableHeader); fault != nil {
		return r.fault(0, fault)
	}
	if number := order.Uint64(header[16:]); number != r.facts.number {
		return r.corrupt(0, "the header is of table %d", number)
	}
	if !bytes.Equal(header[24:40], r.env.id[:]) {
		return r.corrupt(0, "the header is of another store")
	}
	r.headerCRC = headerCRC(header)
	at := len(r.data) - tableFooterBytes
	last := bytes.Clone(r.data[at:])
	if got := order.Uint32(last[8:]); got != r.facts.footerCRC {
		return r.corrupt(at, "footer checksum %#x, want %#x by the manifest", got, r.facts.footerCRC)
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
	if p.entries != r.facts.entries || p.tombstones != r.facts.tombstones ||
		p.firstSequence != r.facts.firstSequence || p.lastSequence != r.facts.lastSequence {
		return r.corrupt(int(f.properties.offset), "properties differ from the manifest")
	}
	r.minKey, r.maxKey = p.minKey, p.maxKey
	return r.loadIndex()
}

// loadIndex checks that the blocks fill the file up to the index, that their last keys
// fill the index after its records, and that these keys are in ascending order.
func (r *tableReader) loadIndex() error {
	var reason string
	at := r.footer.index.offset
	r.tableIndex, reason = parseIndex(r.section(r.footer.index), at, r.minKey, r.maxKey)
	if reason != "" {
		return r.corrupt(int(at), "%s", reason)
	}
	r.verified = make([]atomic.Uint32, (r.blocks+31)/32)
	return nil
}

func (r *tableReader) section(s section) []byte { return r.data[s.offset : s.offset+s.length] }

// findBlock returns the first block whose last key is at least key, or the number of
// blocks.
func (r *tableReader) findBlock(key []byte) int {
	if prefix, covered := r.place(key); covered {
		return r.find(prefix, key)
	}
	if bytes.Compare(key, r.minKey) < 0 {
		return 0
	}
	return r.blocks
}

// blockRange returns the position of a block.
func (r *tableReader) blockRange(i int) (start, end uint64) {
	start, end = r.blockOffset(i), r.footer.index.offset
	if i+1 < r.blocks {
		end = r.blockOffset(i + 1)
	}
	return start, end
}

// block returns a block in the mapping, and verifies it at its first read.
func (r *tableReader) block(i int) (block, error) {
	if !r.isVerified(i) {
		if err := r.verify(i); err != nil {
			return block{}, err
		}
	}
	start, end := r.blockRange(i)
	b, fault := parseBlock(r.data[start:end])
	if fault != nil {
		return block{}, r.fault(int(start), fault)
	}
	return b, nil
}

// verify verifies a block.
func (r *tableReader) verify(i int) error {
	c := newBlockCopy()
	defer c.release()
	return r.read(c, i)
}

// search looks up a key in the block that find returned for it. A value is returned as
// a slice of the mapping. Absence or a tombstone is confirmed in a copy.
func (r *tableReader) search(i int, key []byte) (e kv.Entry, found bool, err error) {
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

// guard runs fn, which reads the table. It converts a memory fault to a *ReadError and
// an access out of bounds to a *CorruptionError.
func (r *tableReader) guard(fn func() error) (err error) {
	if fault := vfs.Guard(func() { err = fn() }); fault != nil {
		return r.failed(fault)
	}
	return err
}

// failed converts an error of vfs.Guard to one that names the table.
func (r *tableReader) failed(fault error) error {
	if errors.Is(fault, vfs.ErrBounds) {
		return r.corrupt(0, "changed while it was read: %v", fault)
	}
	return errors.WithStack(&ReadError{Path: r.path, Err: fault})
}

// indexBytes returns the memory of the index.
func (r *tableReader) indexBytes() int64 {
	return int64(8*len(r.words) + 4*len(r.buckets) + 4*len(r.verified))
}

// ref adds a reference.
func (r *tableReader) ref() { r.refs.Add(1) }

// unref removes a reference. The last one unmaps the table, which no reader may use then.
func (r *tableReader) unref() {
	left := r.refs.Add(-1)
	invariants.References(int64(left), "a table")
	if left == 0 {
		r.close()
	}
}

// close unmaps the table. There must be no readers.
func (r *tableReader) close() {
	_ = r.mapping.Close()
	r.env.countIndex(-r.indexBytes())
}

func (r *tableReader) corrupt(offset int, format string, args ...any) error {
	return errors.WithStack(&CorruptionError{Path: r.path, Offset: int64(offset), Reason: fmt.Sprintf(format, args...)})
}

func (r *tableReader) fault(offset int, f *formatFault) error {
	if f.newer {
		return errors.Wrapf(ErrNewerVersion, "%s", r.path)
	}
	return r.corrupt(offset, "%s", f.reason)
}

func (r *tableReader) openFilter() (*bloom.Filter, error) {
	s := r.footer.filter
	return bloom.Open(r.path, io.NewSectionReader(guardedReader{r.data}, int64(s.offset), int64(s.length)))
}

// mapped returns the file, as it is in memory. It must be read inside guard.
func (r *tableReader) mapped() []byte { return r.data }

// content returns a reader of the file, also if its name was removed.
func (r *tableReader) content() *io.SectionReader {
	return io.NewSectionReader(guardedReader{r.data}, 0, int64(len(r.data)))
}

// bounds returns the smallest and the greatest key.
func (r *tableReader) bounds() (minKey, maxKey []byte) { return r.minKey, r.maxKey }

// spoolBytes returns the size of the sections that a tableWriter keeps in a spool.
func (r *tableReader) spoolBytes() uint64 { return r.footer.filter.length + r.footer.index.length }

// adviseAll asks the kernel to map the whole table, most of which is in the page cache
// after it was written. That avoids page faults in lookups.
func (r *tableReader) adviseAll() {
	_ = r.mapping.Advise(vfs.AdvisePresent) // best effort
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
