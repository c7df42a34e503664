package lsm

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// tableReader reads a mapped table. Its methods read the mapping, and some return
// slices of it, so they must be called inside guard or vfs.Guard.
//
// The index is verified when the table is opened, a block when it is first read. Bytes
// read from the mapping after that may be damaged: see blockCopy.
type tableReader struct {
	path         string
	mapping      vfs.Mapping
	data         []byte
	footer       footer
	facts        tableFacts
	minKey       []byte
	maxKey       []byte
	mean         meanEntry
	randomAccess bool // random access: the kernel does not read ahead
	tableIndex
	headerCRC uint32          // prefix of the checksum of each block
	verified  []atomic.Uint32 // a bit per block
	budget    *Budget         // charged for the index
}

// openTableReader maps the table described by facts and verifies all of it except
// blocks and filter.
func openTableReader(env *environment, facts tableFacts, advice vfs.Advice) (r *tableReader, err error) {
	r = &tableReader{path: env.path(tableName(facts.number)), facts: facts, mean: newMeanEntry(facts), randomAccess: advice == vfs.AdviseRandom, budget: env.budget}
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
	if err = r.guard(func() error { return r.open(env.id) }); err == nil {
		err = errors.Wrapf(r.mapping.Advise(advice), "lsm: advise on %s", r.path)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// open decodes and verifies header, footer, properties and index.
func (r *tableReader) open(id storeID) error {
	header := bytes.Clone(r.data[:tableHeaderBytes])
	if fault := checkPreamble(header, tableMagic, tableVersion, kindTableHeader); fault != nil {
		return r.fault(0, fault)
	}
	if number := order.Uint64(header[16:]); number != r.facts.number {
		return r.corrupt(0, "the header is of table %d", number)
	}
	if !bytes.Equal(header[24:40], id[:]) {
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
	r.budget.table(r.indexBytes())
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

// indexBytes returns the memory of the index, 0 if it has not been loaded.
func (r *tableReader) indexBytes() int64 {
	return int64(8*len(r.words) + 4*len(r.buckets) + 4*len(r.verified))
}

// close unmaps the table. There must be no readers.
func (r *tableReader) close() {
	_ = r.mapping.Close()
	r.budget.table(-r.indexBytes())
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
