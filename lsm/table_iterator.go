package lsm

import "docstore/internal/prefetch"

// tableIterator steps over the entries of a table.
type tableIterator struct {
	r       *tableReader
	index   int // of the block
	block   block
	at      int    // of the entry in the block
	run     int    // blocks that were read one behind the other
	asked   uint64 // for blocks from here on the disk has been asked
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
	if !it.load(it.r.findBlock(key)) {
		return false
	}
	it.at, _ = it.block.search(key)
	return it.show() // the block's last key is at or above key
}

func (it *tableIterator) seekLT(key []byte) bool {
	it.run = 0
	i := it.r.findBlock(key)
	if i == it.r.blocks {
		return it.last()
	}
	if !it.load(i) {
		return false
	}
	if it.at, _ = it.block.search(key); it.at == 0 {
		return it.enter(i-1, true)
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

// enter shows the first or last entry of a block.
func (it *tableIterator) enter(index int, last bool) bool {
	if !it.load(index) {
		return false
	}
	it.readAhead(last)
	it.at = 0
	if last {
		it.at = it.block.count - 1
		if index > 0 { // forwards the processor sees by itself what will be read
			start, end := it.r.blockRange(index - 1)
			prefetch.Bytes(it.r.data[start:min(end, start+blockTargetBytes)])
		}
	}
	return it.show()
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

// load makes a block the current one; there is none at either end.
func (it *tableIterator) load(index int) bool {
	it.failure = nil
	if index < 0 || index >= it.r.blocks {
		return false
	}
	it.index = index
	it.block, it.failure = it.r.block(index)
	return it.failure == nil
}

func (it *tableIterator) show() bool {
	e, ok := it.block.entry(it.at)
	if !ok {
		it.failure = it.r.corrupt(0, "block %d changed while it was read", it.index)
		return false
	}
	it.current = e
	return true
}

func (it *tableIterator) shown() *entry { return &it.current }
func (it *tableIterator) err() error    { return it.failure }
