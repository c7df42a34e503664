package lsm

import (
	"bytes"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// tableBufferBytes is how much of a table is gathered for one write call.
const tableBufferBytes = 256 << 10

// tableWriter writes a table in one pass: filter and index are built while the
// blocks stream out. Any failure is final; the owner then calls abandon.
type tableWriter struct {
	fs     vfs.FS
	path   string
	file   vfs.File
	number uint64
	buf    []byte
	offset uint64 // of the end of buf in the file

	block        blockBuilder
	indexRecords []byte
	indexKeys    []byte
	filter       *bloom.Builder
	properties   tableProperties
	lastKey      []byte
}

func newTableWriter(env *environment, number uint64) (*tableWriter, error) {
	path := env.path(tableName(number))
	file, err := env.fs.Create(path)
	if err != nil {
		return nil, errors.Wrap(err, "lsm: create a table")
	}
	w := &tableWriter{
		fs: env.fs, path: path, file: file, number: number,
		buf:    make([]byte, 0, tableBufferBytes),
		filter: bloom.NewBuilder(&bloom.Options{FalsePositiveRate: env.falsePositiveRate}),
	}
	if err := w.write(encodeTableHeader(number, env.id)); err != nil {
		w.abandon()
		return nil, err
	}
	return w, nil
}

// add appends an entry, whose key must be above the last one. Key and value have
// to stay as they are until endBlock or finish.
func (w *tableWriter) add(e entry) error {
	p := &w.properties
	if p.entries == 0 {
		p.minKey = bytes.Clone(e.key)
	} else if bytes.Compare(w.lastKey, e.key) >= 0 {
		return errors.Wrapf(ErrOutOfOrder, "%.64q behind %.64q in %s", e.key, w.lastKey, w.path)
	}
	if w.block.sizeWith(e) > blockTargetBytes {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	w.lastKey = append(w.lastKey[:0], e.key...)
	w.filter.Add(e.key)
	p.entries++
	p.keyBytes += uint64(len(e.key))
	p.valueBytes += uint64(len(e.value))
	if e.tombstone {
		p.tombstones++
	}
	if w.block.sizeWith(e) > blockTargetBytes {
		// The value goes to the file from where it is.
		w.noteBlock()
		return w.write(largeBlock(e), e.value)
	}
	w.block.add(e)
	return nil
}

// endBlock writes the entries that are still held by reference.
func (w *tableWriter) endBlock() error {
	if w.block.empty() {
		return nil
	}
	w.noteBlock()
	if cap(w.buf)-len(w.buf) < blockTargetBytes {
		if err := w.drain(); err != nil {
			return err
		}
	}
	before := len(w.buf)
	w.buf = w.block.finish(w.buf)
	w.offset += uint64(len(w.buf) - before)
	return nil
}

// noteBlock adds a block that begins here and ends with lastKey to the index.
func (w *tableWriter) noteBlock() {
	w.indexKeys = append(w.indexKeys, w.lastKey...)
	w.indexRecords = order.AppendUint64(w.indexRecords, 0) // the prefix, when all keys are known
	w.indexRecords = order.AppendUint64(w.indexRecords, w.offset)
	w.indexRecords = order.AppendUint64(w.indexRecords, uint64(len(w.indexKeys)))
}

// index finishes the records and returns the parts of the index.
func (w *tableWriter) index() [][]byte {
	p := &w.properties
	shared := commonPrefix(p.minKey, p.maxKey)
	head := make([]byte, indexHeaderBytes)
	order.PutUint32(head, uint32(len(w.indexRecords)/indexRecordBytes))
	order.PutUint32(head[4:], uint32(shared))
	start := uint64(0)
	for record := w.indexRecords; len(record) > 0; record = record[indexRecordBytes:] {
		end := order.Uint64(record[16:])
		order.PutUint64(record, keyPrefix(w.indexKeys[start+uint64(shared):end]))
		start = end
	}
	return [][]byte{head, w.indexRecords, w.indexKeys}
}

// finish writes what lies behind the blocks and makes the file durable; the
// directory is the caller's. A table without entries is abandoned and has no facts.
func (w *tableWriter) finish(firstSequence, lastSequence uint64) (tableFacts, error) {
	p := &w.properties
	if p.entries == 0 {
		w.abandon()
		return tableFacts{}, nil
	}
	if err := w.endBlock(); err != nil {
		return tableFacts{}, err
	}
	p.maxKey, p.firstSequence, p.lastSequence = w.lastKey, firstSequence, lastSequence

	var f footer
	for _, part := range []struct {
		at    *section
		bytes [][]byte
	}{
		{&f.index, w.index()},
		{&f.filter, [][]byte{w.filter.Finish(nil)}},
		{&f.properties, [][]byte{p.encode()}},
	} {
		part.at.offset, part.at.crc = w.offset, checksum.Of(part.bytes...)
		if err := w.write(part.bytes...); err != nil {
			return tableFacts{}, err
		}
		part.at.length = w.offset - part.at.offset
	}
	f.fileBytes = w.offset + tableFooterBytes
	encoded := f.encode()
	if err := w.write(encoded); err != nil {
		return tableFacts{}, err
	}
	if err := w.drain(); err != nil {
		return tableFacts{}, err
	}
	if err := w.file.Sync(); err != nil {
		return tableFacts{}, errors.Wrap(err, "lsm: sync a table")
	}
	if err := w.file.Close(); err != nil {
		return tableFacts{}, errors.Wrap(err, "lsm: close a table")
	}
	w.file = nil
	return tableFacts{
		number: w.number, fileBytes: f.fileBytes,
		entries: p.entries, tombstones: p.tombstones, keyBytes: p.keyBytes, valueBytes: p.valueBytes,
		firstSequence: firstSequence, lastSequence: lastSequence,
		footerCRC: order.Uint32(encoded[8:]),
	}, nil
}

// write appends parts through the buffer; what is large goes around it.
func (w *tableWriter) write(parts ...[]byte) error {
	for _, part := range parts {
		w.offset += uint64(len(part))
		if len(w.buf)+len(part) <= cap(w.buf) {
			w.buf = append(w.buf, part...)
			continue
		}
		if err := w.drain(); err != nil {
			return err
		}
		if len(part) <= cap(w.buf) {
			w.buf = append(w.buf, part...)
			continue
		}
		if _, err := w.file.Write(part); err != nil {
			return errors.Wrap(err, "lsm: write a table")
		}
	}
	return nil
}

func (w *tableWriter) drain() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.file.Write(w.buf)
	w.buf = w.buf[:0]
	return errors.Wrap(err, "lsm: write a table")
}

// abandon removes what was written. What it cannot remove, the next Open does.
func (w *tableWriter) abandon() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	_ = w.fs.Remove(w.path)
}
