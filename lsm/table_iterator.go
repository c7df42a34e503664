package lsm

import "docstore/internal/prefetch"

// tableIterator steps over the entries of a table, block by block in a verified copy.
// The entry that it shows lies in the copy. Its positioning calls guard the mapping.
type tableIterator struct {
	r       *tableReader
	index   int        // of the block
	block   *blockCopy // nil until the first positioning call
	at      int        // of the entry in the block
	run     int        // blocks that were read one behind the other
	asked   uint64     // for blocks from here on the disk has been asked
	current entry
	failure error
}

func (r *tableReader) iterator() *tableIterator { return &tableIterator{r: r} }

func (it *tableIterator) first() bool {
	it.run = 0
	return it.enter(0, false)
}

func (it *tableIterator) last() bool {
	it.run = 0
	return it.enter(it.r.blocks-1, true)
}

func (it *tableIterator) seekGE(key []byte) bool {
	it.run = 0
	if !it.seek(key) {
		return false
	}
	it.at, _ = it.block.search(key)
	return it.show() // the block's last key is at or above key
}

func (it *tableIterator) seekLT(key []byte) bool {
	it.run = 0
	if !it.seek(key) {
		return it.failure == nil && it.last()
	}
	if it.at, _ = it.block.search(key); it.at == 0 {
		return it.enter(it.index-1, true)
	}
	it.at--
	return it.show()
}

func (it *tableIterator) prefetchIndex(key []byte) {
	if prefix, covered := it.r.place(key); covered {
		it.r.prefetchRecord(prefix)
	}
}

func (it *tableIterator) prefetchBlock(key []byte) {
	if prefix, covered := it.r.place(key); covered {
		i := it.r.find(prefix, key)
		it.r.prefetchKeys(i)
		it.r.prefetchValue(i, prefix)
	}
}

func (it *tableIterator) next() bool {
	if it.at+1 == it.block.count {
		return it.enter(it.index+1, false)
	}
	it.at++
	return it.show()
}

func (it *tableIterator) prev() bool {
	if it.at == 0 {
		return it.enter(it.index-1, true)
	}
	it.at--
	return it.show()
}

// seek reads the block that a key can be in, or the first one if the key is below the
// least. There is none if the key is above the greatest.
func (it *tableIterator) seek(key []byte) bool {
	return it.load(func() error {
		if it.index = it.r.findBlock(key); it.index == it.r.blocks {
			return nil
		}
		return it.r.readFor(it.block, it.index, key)
	})
}

// enter shows the first or last entry of a block; there is none at either end.
func (it *tableIterator) enter(index int, last bool) bool {
	it.index, it.failure = index, nil
	if index < 0 || index >= it.r.blocks || !it.load(func() error { return it.read(last) }) {
		return false
	}
	it.at = 0
	if last {
		it.at = it.block.count - 1
	}
	return it.show()
}

// read reads the current block and prefetches what a scan will read next.
func (it *tableIterator) read(backward bool) error {
	if err := it.r.read(it.block, it.index); err != nil {
		return err
	}
	it.readAhead(backward)
	if backward && it.index > 0 { // forwards the processor prefetches by itself
		start, end := it.r.blockRange(it.index - 1)
		prefetch.Bytes(it.r.data[start:min(end, start+blockTargetBytes)])
	}
	return nil
}

// A scan of what is not in memory would wait for the disk at each page: the mapping is
// for look-ups, and the kernel does not read ahead in it. So who has read a few blocks one
// behind the other has the next ones read in the background.
const (
	readAheadAfter = 4
	readAheadBytes = 512 << 10
)

// readAhead asks for what lies behind the block that was entered, in a direction.
func (it *tableIterator) readAhead(backward bool) {
	if it.run++; it.run < readAheadAfter || !it.r.lookUps {
		return
	}
	start, end := it.r.blockRange(it.index)
	var from, to uint64
	if backward {
		if it.run == readAheadAfter || it.asked > start {
			it.asked = start
		}
		from, to = start-min(start, readAheadBytes), it.asked
	} else {
		if it.run == readAheadAfter || it.asked < end {
			it.asked = end
		}
		from, to = it.asked, min(end+readAheadBytes, it.r.footer.index.offset)
	}
	if to < from+readAheadBytes/2 && from > 0 && to < it.r.footer.index.offset || from >= to {
		return // there is enough ahead, or nothing more
	}
	it.asked = to
	if backward {
		it.asked = from
	}
	_ = it.r.mapping.WillRead(int64(from), int64(to)) // all is read as well without
}

// load runs a function that sets index and reads the block, and returns whether there
// is one.
func (it *tableIterator) load(read func() error) bool {
	if it.block == nil {
		it.block = newBlockCopy()
	}
	it.failure = it.r.guard(read)
	return it.failure == nil && it.index < it.r.blocks
}

// release returns the copy to its pool. The iterator may be positioned again.
func (it *tableIterator) release() {
	if it.block != nil {
		it.block.release()
		it.block = nil
	}
}

func (it *tableIterator) show() bool {
	e, ok := it.block.entry(it.at)
	if !ok {
		it.failure = it.r.corrupt(0, "malformed entry in block %d", it.index)
		return false
	}
	it.current = e
	return true
}

func (it *tableIterator) shown() *entry { return &it.current }
func (it *tableIterator) err() error    { return it.failure }
