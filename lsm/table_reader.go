package lsm

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// tableReader reads a mapped table. Everything but open and close touches the
// mapping, returns slices of it, and so belongs inside vfs.Guard.
//
// The index is verified when the table is opened, a block when it is first
// touched; that is remembered, so that a page which the kernel drops and reads
// again is not verified again.
type tableReader struct {
	path    string
	mapping vfs.Mapping
	data    []byte
	footer  footer
	facts   tableFacts
	minKey  []byte
	maxKey  []byte
	mean    meanEntry
	lookUps bool // it is read here and there: the kernel does not read ahead
	tableIndex
	verified []atomic.Uint32 // a bit for each block
}

// openTableReader maps the table that facts tell of and verifies all but its blocks
// and its filter.
func openTableReader(env *environment, facts tableFacts, advice vfs.Advice) (r *tableReader, err error) {
	r = &tableReader{path: env.path(tableName(facts.number)), facts: facts, mean: newMeanEntry(facts), lookUps: advice == vfs.AdviseRandom}
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
		return nil, r.corrupt(0, "%d bytes, the manifest says %d", info.Size, facts.fileBytes)
	}
	if r.mapping, err = file.Map(info.Size); err != nil {
		return nil, errors.Wrapf(err, "lsm: map %s", r.path)
	}
	r.data = r.mapping.Bytes()
	if fault := vfs.Guard(func() { err = r.load(env.id) }); fault != nil {
		err = errors.Wrapf(fault, "lsm: read %s", r.path)
	}
	if err == nil {
		err = errors.Wrapf(r.mapping.Advise(advice), "lsm: advise on %s", r.path)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// load decodes and verifies header, footer, properties and index.
func (r *tableReader) load(id storeID) error {
	if fault := checkPreamble(r.data[:tableHeaderBytes], tableMagic, tableVersion, kindTableHeader); fault != nil {
		return r.fault(0, fault)
	}
	if number := order.Uint64(r.data[16:]); number != r.facts.number {
		return r.corrupt(0, "the header is of table %d", number)
	}
	if !bytes.Equal(r.data[24:40], id[:]) {
		return r.corrupt(0, "the header is of another store")
	}
	at := len(r.data) - tableFooterBytes
	if got := order.Uint32(r.data[at+8:]); got != r.facts.footerCRC {
		return r.corrupt(at, "footer checksum %#x, the manifest says %#x", got, r.facts.footerCRC)
	}
	f, fault := decodeFooter(r.data[at:], uint64(len(r.data)))
	if fault != nil {
		return r.fault(at, fault)
	}
	r.footer = f
	for _, s := range []section{f.index, f.properties} {
		if checksum.Of(r.section(s)) != s.crc {
			return r.corrupt(int(s.offset), "wrong checksum of index or properties")
		}
	}
	p, fault := decodeProperties(r.section(f.properties))
	if fault != nil {
		return r.fault(int(f.properties.offset), fault)
	}
	if p.entries != r.facts.entries || p.tombstones != r.facts.tombstones ||
		p.firstSequence != r.facts.firstSequence || p.lastSequence != r.facts.lastSequence {
		return r.corrupt(int(f.properties.offset), "the properties are not what the manifest says")
	}
	r.minKey, r.maxKey = p.minKey, p.maxKey
	return r.loadIndex()
}

// loadIndex checks that the blocks fill what lies before the index, and that
// their last keys fill what lies behind its records, in ascending order.
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

// findBlock returns the first block whose last key is at or above key, or the
// number of blocks.
func (r *tableReader) findBlock(key []byte) int {
	if prefix, covered := r.place(key); covered {
		return r.find(prefix, key)
	}
	if bytes.Compare(key, r.minKey) < 0 {
		return 0
	}
	return r.blocks
}

// blockRange tells where a block lies.
func (r *tableReader) blockRange(i int) (start, end uint64) {
	if i+1 < r.blocks {
		return r.blockOffset(i), r.blockOffset(i + 1)
	}
	return r.blockOffset(i), r.footer.index.offset
}

// block returns a block, verified.
func (r *tableReader) block(i int) (block, error) {
	start, end := r.blockRange(i)
	b, fault := parseBlock(r.data[start:end])
	if fault != nil {
		return block{}, r.fault(int(start), fault)
	}
	word, bit := &r.verified[i/32], uint32(1)<<(i%32)
	if word.Load()&bit != 0 {
		return b, nil
	}
	if fault := b.verify(); fault != nil {
		return block{}, r.fault(int(start), fault)
	}
	if padding := r.data[start+uint64(len(b.data)) : end]; bytes.Count(padding, []byte{0}) < len(padding) {
		return block{}, r.corrupt(int(start), "the padding behind a block is not zero")
	}
	if first := b.key(0); i == 0 && !bytes.Equal(first, r.minKey) || i > 0 && bytes.Compare(first, r.lastKey(i-1)) <= 0 {
		return block{}, r.corrupt(int(start), "the first key is not where the index has it")
	}
	if !bytes.Equal(b.key(b.count-1), r.lastKey(i)) {
		return block{}, r.corrupt(int(start), "the index names another last key")
	}
	word.Or(bit)
	return b, nil
}

// search looks up a key in the block that find says.
func (r *tableReader) search(i int, key []byte) (e entry, found bool, err error) {
	b, err := r.block(i)
	if err != nil {
		return entry{}, false, err
	}
	at, found := b.search(key)
	if !found {
		return entry{}, false, nil
	}
	e, _ = b.entry(at)
	return e, true, nil
}

// close unmaps. Nobody may be reading.
func (r *tableReader) close() { _ = r.mapping.Close() }

func (r *tableReader) corrupt(offset int, format string, args ...any) error {
	return errors.WithStack(&CorruptionError{Path: r.path, Offset: int64(offset), Reason: fmt.Sprintf(format, args...)})
}

func (r *tableReader) fault(offset int, f *formatFault) error {
	if f.newer {
		return errors.Wrapf(ErrNewerVersion, "%s", r.path)
	}
	return r.corrupt(offset, "%s", f.reason)
}

// guardedReader reads from a mapping like a file.
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
