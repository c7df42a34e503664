package lsm

import (
	"bytes"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// tableWriter writes a table in one pass. It cuts the entries into blocks and
// counts them; its encoder does the rest beside it. Any failure is final; the owner
// then calls abandon.
type tableWriter struct {
	fs     vfs.FS
	path   string
	file   vfs.File
	number uint64

	encoder    *tableEncoder
	joined     bool       // the encoder has ended
	part       *tablePart // being filled
	block      blockSize  // of the entries behind the last block of part
	properties tableProperties
	lastKey    []byte
}

func newTableWriter(env *environment, number uint64) (*tableWriter, error) {
	path := env.path(tableName(number))
	file, err := env.fs.Create(path)
	if err != nil {
		return nil, errors.Wrap(err, "lsm: create a table")
	}
	w := &tableWriter{fs: env.fs, path: path, file: file, number: number}
	w.encoder = newTableEncoder(file, env.falsePositiveRate)
	err = w.encoder.write(encodeTableHeader(number, env.id))
	w.part = <-w.encoder.free
	go w.encoder.run()
	if err != nil {
		w.abandon()
		return nil, err
	}
	return w, nil
}

// add appends an entry, whose key must be above the last one. Key and value have
// to stay as they are until the table is finished or abandoned.
func (w *tableWriter) add(e entry) error {
	p := &w.properties
	if p.entries == 0 {
		p.minKey = bytes.Clone(e.key)
	} else if bytes.Compare(w.lastKey, e.key) >= 0 {
		return errors.Wrapf(ErrOutOfOrder, "%.64q behind %.64q in %s", e.key, w.lastKey, w.path)
	}
	w.lastKey = append(w.lastKey[:0], e.key...)
	p.entries++
	p.keyBytes += uint64(len(e.key))
	p.valueBytes += uint64(len(e.value))
	if e.tombstone {
		p.tombstones++
	}
	if !w.block.take(&e) {
		if err := w.endBlock(); err != nil {
			return err
		}
		w.block.take(&e) // an empty block takes any
	}
	w.part.entries = append(w.part.entries, e)
	if w.block.entries == 1 && w.block.large() {
		return w.endBlock()
	}
	return nil
}

// endBlock ends a block with the last entry, and hands over what is enough.
func (w *tableWriter) endBlock() error {
	if w.block.entries == 0 {
		return nil
	}
	w.part.blocks = append(w.part.blocks, partBlock{
		end: len(w.part.entries), bytes: w.block.encoded(), mixed: w.block.mixed, large: w.block.large(),
	})
	w.part.bytes += w.block.encoded()
	w.block = blockSize{}
	if w.part.bytes < partBytes {
		return nil
	}
	return w.handOver()
}

// added is the number of bytes of keys and values so far.
func (w *tableWriter) added() uint64 { return w.properties.keyBytes + w.properties.valueBytes }

func (w *tableWriter) handOver() error {
	w.encoder.parts <- w.part
	w.part = <-w.encoder.free
	return w.encoder.err()
}

// join hands over the rest and waits for the encoder, whose state belongs to the
// writer from then on.
func (w *tableWriter) join() error {
	err := w.endBlock()
	if err == nil && len(w.part.blocks) > 0 {
		err = w.handOver()
	}
	w.joined = true
	return errors.CombineErrors(err, w.encoder.finish())
}

// finish writes what lies behind the blocks and makes the file durable; the
// directory is the caller's. A table without entries is abandoned and has no facts.
func (w *tableWriter) finish(firstSequence, lastSequence uint64) (tableFacts, error) {
	p := &w.properties
	if p.entries == 0 {
		w.abandon()
		return tableFacts{}, nil
	}
	if err := w.join(); err != nil {
		return tableFacts{}, err
	}
	p.maxKey, p.firstSequence, p.lastSequence = w.lastKey, firstSequence, lastSequence

	e := w.encoder
	var f footer
	for _, part := range []struct {
		at    *section
		bytes [][]byte
	}{
		{&f.index, e.index(p.minKey, p.maxKey)},
		{&f.filter, [][]byte{e.filter.Finish(nil)}},
		{&f.properties, [][]byte{p.encode()}},
	} {
		part.at.offset, part.at.crc = e.offset, checksum.Of(part.bytes...)
		if err := e.write(part.bytes...); err != nil {
			return tableFacts{}, err
		}
		part.at.length = e.offset - part.at.offset
	}
	f.fileBytes = e.offset + tableFooterBytes
	encoded := f.encode()
	if err := e.write(encoded); err != nil {
		return tableFacts{}, err
	}
	if err := e.drain(); err != nil {
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

// abandon removes what was written. What it cannot remove, the next Open does.
func (w *tableWriter) abandon() {
	if !w.joined {
		w.joined = true
		_ = w.encoder.finish() // nobody wants the table any more
	}
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	_ = w.fs.Remove(w.path)
}
