package lsm

import (
	"bytes"
	"slices"
	"sync"

	"docstore/internal/checksum"
)

// blockCopy is a copy of a block in memory whose checksum has been verified.
//
// The bytes of a mapping may change at any time: a page that was verified once may be
// damaged in memory, or read again from a failing disk. So whatever must be right is
// read from a copy: the entries that iterators and merges see, and every block that
// answers that a key is absent or deleted.
//
// The checksum covers the table, the number of the block and the last key of the block
// before it. A valid copy is therefore the block that was asked for, not another valid
// block in its place, and it holds every key of the table above before and up to its
// own last key. The mapped index only says where to look.
type blockCopy struct {
	block
	before []byte // the last key of the block before; empty for the first block
	buf    []byte // number u32 | before | block | padding
}

// keptCopyBytes bounds the buffer of a copy that is kept for reuse. Only the block of a
// large entry needs more.
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
func (r *tableReader) read(c *blockCopy, i int) error {
	start, end := r.blockRange(i)
	if fault := r.copyBlock(c, i, r.data[start:end], int(end-start)); fault != nil {
		return r.fault(int(start), fault)
	}
	if !c.valuesAreValid() {
		return r.corrupt(int(start), "wrong checksum of the values of a block")
	}
	if r.isVerified(i) {
		return nil
	}
	if fault := r.checkContents(c, i); fault != nil {
		return r.fault(int(start), fault)
	}
	r.verified[i/32].Or(1 << (i % 32))
	return nil
}

// readKeys is read without the values of an even block, for a block that read has
// verified once. Where values are long it takes a tenth of the time.
func (r *tableReader) readKeys(c *blockCopy, i int) error {
	start, end := r.blockRange(i)
	mapped := r.data[start:end]
	n := len(mapped)
	if b, fault := parseBlock(mapped); fault == nil {
		n = len(b.head())
	}
	if fault := r.copyBlock(c, i, mapped, n); fault != nil {
		return r.fault(int(start), fault)
	}
	return nil
}

// copyBlock makes c a copy of the first n bytes of block i, which is mapped, and verifies
// what headIsValid does.
func (r *tableReader) copyBlock(c *blockCopy, i int, mapped []byte, n int) *formatFault {
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
	b, fault := parseBlock(c.buf[bound:])
	switch {
	case fault != nil:
		return fault
	case len(b.head()) > n || !b.headIsValid(checksum.Update(r.headerCRC, c.buf[:bound])):
		return &formatFault{reason: "wrong checksum of a block, or of the key before it in the index"}
	}
	c.block = b
	return nil
}

// isVerified tells whether read has verified a block since the table was opened.
func (r *tableReader) isVerified(i int) bool { return r.verified[i/32].Load()&(1<<(i%32)) != 0 }

// checkContents checks what a block with a valid checksum holds. It finds a fault of the
// program that wrote the table, so once for each block is enough.
func (r *tableReader) checkContents(c *blockCopy, i int) *formatFault {
	if fault := c.checkEntries(); fault != nil {
		return fault
	}
	if padding := c.buf[4+len(c.before)+len(c.data):]; bytes.Count(padding, []byte{0}) < len(padding) {
		return &formatFault{reason: "the padding after a block is not zero"}
	}
	first, last := c.key(0), c.key(c.count-1)
	if i == 0 && !bytes.Equal(first, r.minKey) || i > 0 && bytes.Compare(first, c.before) <= 0 {
		return &formatFault{reason: "the first key of a block is not where the index has it"}
	}
	if !bytes.Equal(last, r.lastKey(i)) || i == r.blocks-1 && !bytes.Equal(last, r.maxKey) {
		return &formatFault{reason: "the index has another last key of a block"}
	}
	return nil
}

// readFor makes c a verified copy of block i, which find returned for a key.
func (r *tableReader) readFor(c *blockCopy, i int, key []byte) error {
	if err := r.read(c, i); err != nil {
		return err
	}
	return r.leadsTo(c, i, key)
}

// leadsTo checks that a key, if it is not below the least of the table, can be in no
// block but i. c is a verified copy of block i.
func (r *tableReader) leadsTo(c *blockCopy, i int, key []byte) error {
	if i > 0 && bytes.Compare(key, c.before) <= 0 || bytes.Compare(key, c.key(c.count-1)) > 0 {
		return r.corrupt(int(r.footer.index.offset), "the index leads to the wrong block")
	}
	return nil
}

// searchCopy looks up a key in a verified copy of block i, which find returned for it.
func (r *tableReader) searchCopy(i int, key []byte) (e entry, found bool, err error) {
	c := newBlockCopy()
	defer c.release()
	if err := r.readFor(c, i, key); err != nil {
		return entry{}, false, err
	}
	at, found := c.search(key)
	if !found {
		return entry{}, false, nil
	}
	e, _ = c.entry(at)
	return entry{key: bytes.Clone(e.key), value: bytes.Clone(e.value), tombstone: e.tombstone}, true, nil
}

// confirmAbsent makes sure that a block, which find returned for a key and read has
// verified once, does not hold the key. If it does, the mapping held other bytes a moment
// ago, and the entry is that of a copy.
func (r *tableReader) confirmAbsent(i int, key []byte) (e entry, found bool, err error) {
	c := newBlockCopy()
	defer c.release()
	if err := r.readKeys(c, i); err != nil {
		return entry{}, false, err
	}
	if err := r.leadsTo(c, i, key); err != nil {
		return entry{}, false, err
	}
	if _, found := c.search(key); found {
		return r.searchCopy(i, key)
	}
	return entry{}, false, nil
}
