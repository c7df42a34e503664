package table

import (
	"bytes"
	"slices"
	"sync"

	"docstore/internal/checksum"
	"docstore/lsm/internal/kv"
)

// blockCopy is a copy of a block in memory with a verified checksum.
//
// The bytes of a mapping can change at any time: a verified page can be damaged in
// memory, or be read again from a failing disk. So everything that must be correct is
// read from a copy: the entries of iterators and merges, and every block that proves
// that a key is absent or deleted.
//
// The checksum covers the table, the number of the block and the last key of the
// previous block. So a valid copy is the requested block and not another valid block,
// and it holds every key of the table above before and up to its own last key. The
// mapped index is only a hint.
type blockCopy struct {
	block
	before []byte // last key of the previous block; empty for the first block
	buf    []byte // number u32 | before | block | padding
}

// keptCopyBytes bounds the buffer of a copy that is kept for reuse. Only the block of a
// large entry is larger.
const keptCopyBytes = 16 << 10

var blockCopies = sync.Pool{New: func() any { return new(blockCopy) }}

func newBlockCopy() *blockCopy { return blockCopies.Get().(*blockCopy) }

// release makes the copy available for reuse.
func (c *blockCopy) release() {
	c.reset()
	blockCopies.Put(c)
}

// reset discards the copy and a large buffer.
func (c *blockCopy) reset() {
	c.block, c.before = block{}, nil
	if cap(c.buf) > keptCopyBytes {
		c.buf = nil
	}
}

// read makes c a verified copy of block i.
func (r *Reader) read(c *blockCopy, i int) error {
	start, end := r.blockRange(i)
	if fault := r.copyBlock(c, i, r.data[start:end], int(end-start)); fault != nil {
		return r.fault(int(start), fault)
	}
	if !c.valuesAreValid() {
		return r.corrupt(int(start), "wrong checksum of the values of a block")
	}
	if r.verified.has(i) {
		return nil
	}
	if fault := r.checkContents(c, i); fault != nil {
		return r.fault(int(start), fault)
	}
	r.verified.add(i)
	return nil
}

// readKeys is read without the values of an even block, for a block that read has
// verified before. With long values it takes a tenth of the time.
func (r *Reader) readKeys(c *blockCopy, i int) error {
	start, end := r.blockRange(i)
	mapped := r.data[start:end]
	n := len(mapped)
	if b, fault := parseBlock(mapped, r.mean.entry); fault == nil {
		n = len(b.head())
	}
	if fault := r.copyBlock(c, i, mapped, n); fault != nil {
		return r.fault(int(start), fault)
	}
	return nil
}

// copyBlock copies the first n bytes of mapped block i to c and verifies them like
// headIsValid.
func (r *Reader) copyBlock(c *blockCopy, i int, mapped []byte, n int) *FormatFault {
	c.reset()
	if i > 0 {
		c.before = r.lastKey(i - 1)
	}
	bound := 4 + len(c.before)
	c.buf = slices.Grow(c.buf[:0], bound+len(mapped))[:bound+len(mapped)]
	order.PutUint32(c.buf, uint32(i))
	copy(c.buf[4:], c.before)
	copy(c.buf[bound:], mapped[:n])
	c.before = c.buf[4:bound]
	b, fault := parseBlock(c.buf[bound:], r.mean.entry)
	switch {
	case fault != nil:
		return fault
	case len(b.head()) > n || !b.headIsValid(checksum.Update(r.headerCRC, c.buf[:bound])):
		return &FormatFault{Reason: "wrong checksum of a block, or of the key before it in the index"}
	}
	c.block = b
	return nil
}

// checkContents checks the contents of a block with a valid checksum. Only a bug of the
// writing program can violate them, so it runs once per block.
func (r *Reader) checkContents(c *blockCopy, i int) *FormatFault {
	if fault := c.checkEntries(); fault != nil {
		return fault
	}
	if padding := c.buf[4+len(c.before)+len(c.data):]; bytes.Count(padding, []byte{0}) < len(padding) {
		return &FormatFault{Reason: "the padding after a block is not zero"}
	}
	first, last := c.key(0), c.key(c.count-1)
	if i == 0 && !bytes.Equal(first, r.minKey) || i > 0 && bytes.Compare(first, c.before) <= 0 {
		return &FormatFault{Reason: "first key of a block differs from the index"}
	}
	if !bytes.Equal(last, r.lastKey(i)) || i == r.blocks-1 && !bytes.Equal(last, r.maxKey) {
		return &FormatFault{Reason: "last key of a block differs from the index"}
	}
	return nil
}

// readFor makes c a verified copy of block i, which find returned for key.
func (r *Reader) readFor(c *blockCopy, i int, key []byte) error {
	if err := r.read(c, i); err != nil {
		return err
	}
	return r.leadsTo(c, i, key)
}

// leadsTo checks that key can be only in block i, unless it is below the table's
// smallest key. c is a verified copy of block i.
func (r *Reader) leadsTo(c *blockCopy, i int, key []byte) error {
	if i > 0 && bytes.Compare(key, c.before) <= 0 || bytes.Compare(key, c.key(c.count-1)) > 0 {
		return r.corrupt(int(r.footer.index.offset), "the index leads to the wrong block")
	}
	return nil
}

// searchCopy looks up a key in a verified copy of block i, which find returned for it.
func (r *Reader) searchCopy(i int, key []byte) (e kv.Entry, found bool, err error) {
	c := newBlockCopy()
	defer c.release()
	if err := r.readFor(c, i, key); err != nil {
		return kv.Entry{}, false, err
	}
	at, found := c.search(key)
	if !found {
		return kv.Entry{}, false, nil
	}
	e, _ = c.entry(at)
	return kv.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Tombstone: e.Tombstone}, true, nil
}

// confirmAbsent verifies that a block, which find returned for key and read has
// verified before, does not have the key. If it does, the mapping changed in the
// meantime, and the entry is returned from a copy.
func (r *Reader) confirmAbsent(i int, key []byte) (e kv.Entry, found bool, err error) {
	c := newBlockCopy()
	defer c.release()
	if err := r.readKeys(c, i); err != nil {
		return kv.Entry{}, false, err
	}
	if err := r.leadsTo(c, i, key); err != nil {
		return kv.Entry{}, false, err
	}
	if _, found := c.search(key); found {
		return r.searchCopy(i, key)
	}
	return kv.Entry{}, false, nil
}
