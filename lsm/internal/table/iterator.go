package table

import (
	"docstore/internal/prefetch"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// iterator iterates over the entries of a table, in verified copies of its blocks.
// The current entry refers to the copy. Positioning calls guard the mapping.
type iterator struct {
	r       *Reader
	index   int        // number of the block
	block   *blockCopy // nil until the first positioning call
	at      int        // index of the entry in the block
	run     int        // number of consecutive blocks read
	asked   uint64     // offset up to which read-ahead was requested; backwards, from which
	current kv.Entry
	failure error
}

// NewIterator returns an iterator over all entries. Its positioning calls guard the
// mapping.
func (r *Reader) NewIterator() kv.Iterator { return r.iterator() }

func (r *Reader) iterator() *iterator { return &iterator{r: r} }

func (it *iterator) First() bool {
	it.run = 0
	return it.enter(0, false)
}

func (it *iterator) Last() bool {
	it.run = 0
	return it.enter(it.r.blocks-1, true)
}

func (it *iterator) SeekGE(key []byte) bool {
	it.run = 0
	if !it.seek(key) {
		return false
	}
	it.at, _ = it.block.search(key)
	return it.show() // the block's last key is at least key
}

func (it *iterator) SeekLT(key []byte) bool {
	it.run = 0
	if !it.seek(key) {
		return it.failure == nil && it.Last()
	}
	if it.at, _ = it.block.search(key); it.at == 0 {
		return it.enter(it.index-1, true)
	}
	it.at--
	return it.show()
}

func (it *iterator) PrefetchIndex(key []byte) {
	if prefix, covered := it.r.place(key); covered {
		it.r.prefetchWords(prefix)
	}
}

func (it *iterator) PrefetchBlock(key []byte) {
	if prefix, covered := it.r.place(key); covered {
		start, end := it.r.blockRange(it.r.find(prefix, key))
		prefetch.Bytes(it.r.data[start:min(end, start+blockTargetBytes)])
	}
}

func (it *iterator) Next() bool {
	if it.at+1 == it.block.count {
		return it.enter(it.index+1, false)
	}
	it.at++
	return it.show()
}

func (it *iterator) Prev() bool {
	if it.at == 0 {
		return it.enter(it.index-1, true)
	}
	it.at--
	return it.show()
}

// seek reads the block that can have a key, or the first one if key is below the
// smallest. There is none if key is above the greatest.
func (it *iterator) seek(key []byte) bool {
	return it.load(func() error {
		if it.index = it.r.findBlock(key); it.index == it.r.blocks {
			return nil
		}
		return it.r.readFor(it.block, it.index, key)
	})
}

// enter moves to the first or last entry of a block; there is none past either end.
func (it *iterator) enter(index int, last bool) bool {
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

// read reads the current block and prefetches the block that a scan reads next.
func (it *iterator) read(backward bool) error {
	if err := it.r.read(it.block, it.index); err != nil {
		return err
	}
	it.readAhead(backward)
	next := it.index + 1
	if backward {
		next = it.index - 1
	}
	if it.run > 1 && next >= 0 && next < it.r.blocks { // the processor does not prefetch across pages
		start, end := it.r.blockRange(next)
		prefetch.Bytes(it.r.data[start:min(end, start+blockTargetBytes)])
	}
	return nil
}

// A scan of a table outside the page cache would wait for the disk at each page: the
// mapping is for lookups, so the kernel does not read ahead. After a few consecutive
// blocks the next ones are therefore read in the background.
const (
	readAheadAfter = 4
	readAheadBytes = 512 << 10
)

// readAhead requests the blocks after the current one, in a direction.
func (it *iterator) readAhead(backward bool) {
	if it.run++; it.run < readAheadAfter || !it.r.randomAccess {
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
		return // enough is requested, or nothing is left
	}
	it.asked = to
	if backward {
		it.asked = from
	}
	_ = it.r.mapping.WillRead(int64(from), int64(to)) // only an optimization
}

// load runs read, which sets index and reads the block, and reports whether there is an
// entry.
func (it *iterator) load(read func() error) bool {
	if it.block == nil {
		it.block = newBlockCopy()
	}
	it.failure = it.r.Guard(read)
	return it.failure == nil && it.index < it.r.blocks
}

// Release returns the copy to its pool. The iterator may be positioned again.
func (it *iterator) Release() {
	if it.block != nil {
		it.block.release()
		it.block = nil
	}
}

func (it *iterator) show() bool {
	if b := &it.block.block; b.keyBytes > 0 { // as entry, in place
		at := blockHeaderBytes + b.count*b.keyBytes + it.at*b.valueBytes
		it.current.Key, it.current.Value = b.evenKey(it.at), b.data[at:at+b.valueBytes:at+b.valueBytes]
		it.current.Tombstone = false
		return true
	}
	e, ok := it.block.entry(it.at)
	if !ok {
		it.failure = it.r.corrupt(0, "malformed entry in block %d", it.index)
		return false
	}
	it.current = e
	return true
}

func (it *iterator) Current() *kv.Entry { return &it.current }
func (it *iterator) Err() error         { return it.failure }

// Source returns the entries of a table from verified copies of its blocks, so a
// merge never writes damaged bytes under a valid checksum.
type Source struct {
	r     *Reader
	block int // the next
	copy  blockCopy
}

// OpenSource opens the table described by facts, with a separate mapping that is read
// ahead. Its blocks are verified again.
func OpenSource(env *Env, path string, facts Facts) (*Source, error) {
	r, err := openReader(env, path, facts, vfs.AdviseSequential)
	if err != nil {
		return nil, err
	}
	return &Source{r: r}, nil
}

// Close unmaps the table.
func (s *Source) Close() { s.r.close() }

// Next implements kv.Source.
func (s *Source) Next(dst []kv.Entry) ([]kv.Entry, error) {
	if s.block == s.r.blocks {
		return dst, nil
	}
	if err := s.r.Guard(func() error { return s.r.read(&s.copy, s.block) }); err != nil {
		return dst, err
	}
	s.block++
	return s.copy.appendEntries(dst), nil
}
