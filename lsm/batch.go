package lsm

import (
	"encoding/binary"
	"math"

	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/memtable"

	"github.com/cockroachdb/errors"
)

// Size limits and their errors.
const (
	MaxKeyBytes   = kv.MaxKeyBytes   // 64 KiB; ErrKeyTooLarge; the empty key is legal
	MaxValueBytes = kv.MaxValueBytes // 64 MiB; ErrValueTooLarge
	MaxBatchBytes = 256 << 20        // ErrBatchTooLarge, counted as encoded
)

// Encoding of a batch, also used in the log:
//
//	kind u8 = 1 | count u32 | count x op
//	set:    1 u8 | key length uvarint | value length uvarint | key | value
//	delete: 2 u8 | key length uvarint | key
const (
	batchKind        = 1
	batchHeaderBytes = 1 + 4

	opSet    = 1
	opDelete = 2

	// maxOpOverhead is the maximum size of an op without its key and value.
	maxOpOverhead = 1 + 2*binary.MaxVarintLen32
)

// Batch is a sequence of writes that Apply makes visible and durable atomically. The
// last of several writes to one key takes effect. The zero Batch is empty and ready to
// use. A Batch is not safe for concurrent use.
type Batch struct {
	data  []byte // header and ops; empty for the zero Batch
	count int
	err   error // of the first rejected write; Apply returns it, too
}

// Set adds a write. It copies key and value. Set and later Apply return an error if a
// limit is exceeded.
func (b *Batch) Set(key, value []byte) error { return b.add(op{opSet, key, value}) }

// Delete adds the deletion of a key, which need not exist.
func (b *Batch) Delete(key []byte) error { return b.add(op{opDelete, key, nil}) }

func (b *Batch) add(o op) error {
	if err := b.begin(o.key, len(o.value)); err != nil {
		return err
	}
	b.data = append(b.data, o.kind)
	b.data = binary.AppendUvarint(b.data, uint64(len(o.key)))
	if o.kind == opSet {
		b.data = binary.AppendUvarint(b.data, uint64(len(o.value)))
	}
	b.data = append(b.data, o.key...)
	b.data = append(b.data, o.value...)
	return nil
}

// begin checks the limits and adds the header if it is missing.
func (b *Batch) begin(key []byte, valueBytes int) error {
	err := checkSizes(key, valueBytes)
	if err == nil && len(b.data)+len(key)+valueBytes+maxOpOverhead > MaxBatchBytes {
		err = errors.Wrapf(ErrBatchTooLarge, "over %d bytes", MaxBatchBytes)
	}
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return err
	}
	if len(b.data) == 0 {
		b.data = append(b.data, batchKind, 0, 0, 0, 0)
	}
	b.count++
	return nil
}

// checkSizes checks a key and the length of a value against the limits.
func checkSizes(key []byte, valueBytes int) error {
	if len(key) > MaxKeyBytes {
		return errors.Wrapf(ErrKeyTooLarge, "%d bytes, the limit is %d", len(key), MaxKeyBytes)
	}
	if valueBytes > MaxValueBytes {
		return errors.Wrapf(ErrValueTooLarge, "%d bytes, the limit is %d", valueBytes, MaxValueBytes)
	}
	return nil
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.data, b.count, b.err = b.data[:0], 0, nil
}

// Len returns the number of writes in the batch.
func (b *Batch) Len() int { return b.count }

// encoded completes the header and returns the encoded batch.
func (b *Batch) encoded() []byte {
	binary.LittleEndian.PutUint32(b.data[1:], uint32(b.count))
	return b.data
}

// applyWindow is the number of ops of a batch whose slots are prefetched together.
const applyWindow = 16

// applyBatch applies the ops of a checked batch to a memtable, with sequence numbers from
// first on.
func applyBatch(m *memtable.Memtable, batch []byte, first uint64) error {
	ops, err := decodeBatch(batch)
	if err != nil {
		return err
	}
	var window [applyWindow]struct {
		op
		hash uint32
	}
	for ops.count > 0 {
		n := min(ops.count, applyWindow)
		for i := range window[:n] {
			w := &window[i]
			if w.op, err = ops.next(); err != nil {
				return err
			}
			w.hash = memtable.Hash(w.key)
			m.PrefetchSlot(w.hash)
		}
		for i := range window[:n] {
			w := &window[i]
			m.Add(w.hash, w.key, memtable.Version{Sequence: first, Tombstone: w.kind == opDelete, Value: w.value})
			first++
		}
	}
	return nil
}

// op is one write of a batch. Its slices refer to the batch.
type op struct {
	kind       byte
	key, value []byte
}

// opReader decodes the ops of an encoded batch.
type opReader struct {
	rest  []byte
	count int // remaining ops
}

var errBadBatch = errors.New("malformed batch")

// decodeBatch decodes the header of a batch.
func decodeBatch(data []byte) (opReader, error) {
	if len(data) < batchHeaderBytes {
		return opReader{}, errors.Wrapf(errBadBatch, "%d bytes", len(data))
	}
	if data[0] != batchKind {
		return opReader{}, errors.Wrapf(errBadBatch, "kind %d", data[0])
	}
	count := binary.LittleEndian.Uint32(data[1:])
	// An op has at least two bytes.
	if count == 0 || uint64(count) > uint64(len(data)-batchHeaderBytes)/2 {
		return opReader{}, errors.Wrapf(errBadBatch, "%d ops in %d bytes", count, len(data))
	}
	return opReader{rest: data[batchHeaderBytes:], count: int(count)}, nil
}

// checkBatch decodes a whole batch and returns the number of ops.
func checkBatch(data []byte) (count int, err error) {
	r, err := decodeBatch(data)
	if err != nil {
		return 0, err
	}
	count = r.count
	for r.count > 0 {
		if _, err := r.next(); err != nil {
			return 0, err
		}
	}
	if len(r.rest) != 0 {
		return 0, errors.Wrapf(errBadBatch, "%d bytes after the last op", len(r.rest))
	}
	return count, nil
}

// next returns the next op. count must be above 0.
func (r *opReader) next() (op, error) {
	r.count--
	if len(r.rest) == 0 {
		return op{}, errors.Wrap(errBadBatch, "truncated")
	}
	o := op{kind: r.rest[0]}
	if o.kind != opSet && o.kind != opDelete {
		return op{}, errors.Wrapf(errBadBatch, "op kind %d", o.kind)
	}
	r.rest = r.rest[1:]
	keyBytes, ok := r.length(MaxKeyBytes)
	if !ok {
		return op{}, errors.Wrap(errBadBatch, "key length")
	}
	valueBytes := 0
	if o.kind == opSet {
		if valueBytes, ok = r.length(MaxValueBytes); !ok {
			return op{}, errors.Wrap(errBadBatch, "value length")
		}
	}
	if keyBytes+valueBytes > len(r.rest) {
		return op{}, errors.Wrap(errBadBatch, "truncated")
	}
	o.key, r.rest = r.rest[:keyBytes:keyBytes], r.rest[keyBytes:]
	o.value, r.rest = r.rest[:valueBytes:valueBytes], r.rest[valueBytes:]
	return o, nil
}

// length decodes a length of at most limit.
func (r *opReader) length(limit uint64) (int, bool) {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > limit || n > math.MaxInt32 {
		return 0, false
	}
	r.rest = r.rest[size:]
	return int(n), true
}
