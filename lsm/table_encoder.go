package lsm

import (
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/prefetch"
	"docstore/internal/vfs"
)

const (
	// tableWriteBytes is how much of a table is written by one call, from a multiple of
	// it on. It is the page of processors that is next larger than 4 KiB: Linux keeps
	// what was written so in one piece, and maps it as one page.
	tableWriteBytes = 2 << 20
	// firstBufferBytes is gathered at first. Small tables need no more.
	firstBufferBytes = 128 << 10
	// maxBufferedBytes is the most that goes to the buffer at once.
	maxBufferedBytes = blockTargetBytes + maxPaddingBytes
	// partBytes is about how much of a table is handed to the encoder at once.
	partBytes = 64 << 10
	// maxParts are handed over and not yet encoded.
	maxParts = 4
)

// tablePart is a run of whole blocks on their way to the encoder. Keys and values
// lie where their source has them.
type tablePart struct {
	entries []entry
	blocks  []partBlock
	bytes   int
}

// partBlock is a block of a part.
type partBlock struct {
	end   int // behind its last entry
	bytes int // when it is encoded, at most
	mixed bool
	large bool // one entry, whose value goes to the file from where it is
}

// tableEncoder makes the blocks of a table, its index and its filter, and writes
// the blocks to the file, in a goroutine of its own: so a flush or a merge, which
// finds the entries meanwhile, uses two processors. On a busy machine 300,000 entries
// took 59 to 104 ms so, and 101 to 118 in one goroutine.
//
// The goroutine runs from newTableEncoder until finish, which must be called. In
// between only parts, free and failed are shared with it.
type tableEncoder struct {
	parts  chan *tablePart
	free   chan *tablePart // encoded parts, to be filled again
	done   chan struct{}   // closed when the goroutine has ended
	failed atomic.Pointer[error]

	file         vfs.File
	buf          []byte
	offset       uint64 // of the end of buf in the file
	indexRecords []byte
	indexKeys    []byte
	filter       *bloom.Builder
}

func newTableEncoder(file vfs.File, falsePositiveRate float64) *tableEncoder {
	e := &tableEncoder{
		parts:  make(chan *tablePart, maxParts),
		free:   make(chan *tablePart, maxParts+2), // every part there ever is
		done:   make(chan struct{}),
		file:   file,
		buf:    make([]byte, 0, firstBufferBytes),
		filter: bloom.NewBuilder(&bloom.Options{FalsePositiveRate: falsePositiveRate}),
	}
	for range cap(e.free) {
		e.free <- new(tablePart)
	}
	return e
}

// run encodes parts until there are no more. After an error it goes on taking
// them, so that nobody waits for it.
func (e *tableEncoder) run() {
	defer close(e.done)
	for part := range e.parts {
		if e.failed.Load() == nil {
			var err error
			if fault := vfs.Guard(func() { err = e.encode(part) }); fault != nil {
				err = errors.Wrap(fault, "lsm: read a table")
			}
			if err != nil {
				e.failed.Store(&err)
			}
		}
		clear(part.entries) // they keep what they point to
		*part = tablePart{entries: part.entries[:0], blocks: part.blocks[:0]}
		e.free <- part
	}
}

// err is the first error.
func (e *tableEncoder) err() error {
	if err := e.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// finish waits until all parts are encoded, and ends the goroutine. What it
// leaves behind belongs to the caller.
func (e *tableEncoder) finish() error {
	close(e.parts)
	<-e.done
	return e.err()
}

func (e *tableEncoder) encode(part *tablePart) error {
	begin := 0
	for _, b := range part.blocks {
		entries := part.entries[begin:b.end]
		begin = b.end
		prefetchEntries(part.entries[begin:min(begin+len(entries), len(part.entries))])
		for i := range entries {
			e.filter.Add(entries[i].key)
		}
		if b.large {
			e.note(entries[0].key)
			if err := e.write(largeBlock(entries[0]), entries[0].value); err != nil {
				return err
			}
			continue
		}
		e.pad(b.bytes)
		e.note(entries[len(entries)-1].key)
		before := len(e.buf)
		e.buf = appendBlock(e.buf, entries, b.mixed)
		e.offset += uint64(len(e.buf) - before)
		if err := e.flush(); err != nil {
			return err
		}
	}
	return nil
}

// pad leaves the rest of a page empty if it is short and a block would cross its
// end. So a look-up in even entries that fill a block of about a page touches one page,
// and has one read from the disk.
func (e *tableEncoder) pad(blockBytes int) {
	var zeros [maxPaddingBytes]byte
	if rest := pageBytes - int(e.offset%pageBytes); blockBytes > rest && rest <= maxPaddingBytes {
		e.buf = append(e.buf, zeros[:rest]...)
		e.offset += uint64(rest)
	}
}

// prefetchEntries has fetched what the next block is made of: of a memtable, the
// entries lie anywhere, and it was another processor that read them last.
func prefetchEntries(entries []entry) {
	for i := range entries {
		e := &entries[i]
		prefetch.Bytes(e.key[:min(len(e.key), prefetch.LineBytes)])
		prefetch.Bytes(e.value[:min(len(e.value), prefetchedEntryBytes)])
	}
}

// note adds a block that begins here to the index.
func (e *tableEncoder) note(lastKey []byte) {
	e.indexKeys = append(e.indexKeys, lastKey...)
	e.indexRecords = order.AppendUint64(e.indexRecords, 0) // the prefix, when all keys are known
	e.indexRecords = order.AppendUint64(e.indexRecords, e.offset)
	e.indexRecords = order.AppendUint64(e.indexRecords, uint64(len(e.indexKeys)))
}

// index finishes the records and returns the parts of the index.
func (e *tableEncoder) index(minKey, maxKey []byte) [][]byte {
	shared := commonPrefix(minKey, maxKey)
	head := make([]byte, indexHeaderBytes)
	order.PutUint32(head, uint32(len(e.indexRecords)/indexRecordBytes))
	order.PutUint32(head[4:], uint32(shared))
	start := uint64(0)
	for record := e.indexRecords; len(record) > 0; record = record[indexRecordBytes:] {
		end := order.Uint64(record[16:])
		order.PutUint64(record, keyPrefix(e.indexKeys[start+uint64(shared):end]))
		start = end
	}
	return [][]byte{head, e.indexRecords, e.indexKeys}
}

// write appends parts.
func (e *tableEncoder) write(parts ...[]byte) error {
	for _, part := range parts {
		e.offset += uint64(len(part))
		for len(part) > 0 {
			n := copy(e.buf[len(e.buf):cap(e.buf)], part)
			e.buf, part = e.buf[:len(e.buf)+n], part[n:]
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush hands over what fills a write, and makes sure that there is room for
// maxBufferedBytes.
func (e *tableEncoder) flush() error {
	if len(e.buf) < tableWriteBytes {
		if cap(e.buf)-len(e.buf) < maxBufferedBytes {
			e.buf = append(make([]byte, 0, min(2*cap(e.buf), tableWriteBytes+maxBufferedBytes)), e.buf...)
		}
		return nil
	}
	_, err := e.file.Write(e.buf[:tableWriteBytes])
	e.buf = e.buf[:copy(e.buf, e.buf[tableWriteBytes:])]
	return errors.Wrap(err, "lsm: write a table")
}

// drain hands over the rest.
func (e *tableEncoder) drain() error {
	_, err := e.file.Write(e.buf)
	e.buf = e.buf[:0]
	return errors.Wrap(err, "lsm: write a table")
}
