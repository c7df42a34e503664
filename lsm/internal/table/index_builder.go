package table

import (
	"bufio"
	"io"
	"slices"

	"docstore/lsm/internal/kv"

	"github.com/cockroachdb/errors"
)

// indexBuilder builds the index of a table.
type indexBuilder struct {
	blocks int
	last   []byte // last key of the last block
	// spooled has for each block: offset u64, length of the last key u32, last key.
	spooled spooled
	head    [blockHeadBytes]byte // scratch
}

// blockHeadBytes is the length of what precedes a key in indexBuilder.spooled.
const blockHeadBytes = 8 + 4

// add adds a block at an offset of the file.
func (x *indexBuilder) add(offset uint64, lastKey []byte) error {
	x.blocks++
	x.last = append(x.last[:0], lastKey...)
	order.PutUint64(x.head[:], offset)
	order.PutUint32(x.head[8:], uint32(len(lastKey)))
	if err := x.spooled.write(x.head[:]); err != nil {
		return err
	}
	return x.spooled.write(lastKey)
}

// finish passes the index to emit, piece by piece.
func (x *indexBuilder) finish(minKey, maxKey []byte, emit func([]byte) error) error {
	shared := kv.CommonPrefix(minKey, maxKey)
	head := make([]byte, indexHeaderBytes)
	order.PutUint32(head, uint32(x.blocks))
	order.PutUint32(head[4:], uint32(shared))
	if err := emit(head); err != nil {
		return err
	}
	end, record := uint64(0), make([]byte, indexRecordBytes)
	err := x.each(func(offset uint64, key []byte) error {
		end += uint64(len(key))
		order.PutUint64(record, kv.Prefix(key[min(shared, len(key)):]))
		order.PutUint64(record[8:], offset)
		order.PutUint64(record[16:], end)
		return emit(record)
	})
	if err != nil {
		return err
	}
	return x.each(func(_ uint64, key []byte) error { return emit(key) })
}

// each calls fn for each block with its offset and its last key, valid until fn returns.
func (x *indexBuilder) each(fn func(offset uint64, key []byte) error) error {
	return x.spooled.read(func(r *bufio.Reader) error {
		var key []byte
		for range x.blocks {
			if _, err := io.ReadFull(r, x.head[:]); err != nil {
				return errors.Wrap(err, "lsm: read a spool")
			}
			length := order.Uint32(x.head[8:])
			if length > kv.MaxKeyBytes {
				return nil // damaged: read compares the checksum
			}
			key = slices.Grow(key[:0], int(length))[:length]
			if _, err := io.ReadFull(r, key); err != nil {
				return errors.Wrap(err, "lsm: read a spool")
			}
			if err := fn(order.Uint64(x.head[:]), key); err != nil {
				return err
			}
		}
		return nil
	})
}
