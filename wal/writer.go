package wal

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// gatherBytes is the size of the buffer in which a record is assembled. A record that
// fits is written by one call.
const gatherBytes = 32 << 10

// Writer appends records to a log. The first error of the file is final: every later
// Append and Sync returns it, and the caller must continue in a new log.
type Writer struct {
	name     string
	file     vfs.AppendMap
	id       logID
	seed     uint32 // initial CRC of the records
	capacity int64  // bytes that were allocated

	syncing sync.Mutex   // held by Sync and Close; taken before mu
	size    atomic.Int64 // of the log; changed under mu

	mu struct {
		sync.Mutex
		buf    []byte // gatherBytes
		dataTo int64  // end of the last data record
		synced int64  // offset in the last mark
		last   uint64 // sequence number of the last record, 0 before the first
		err    error  // the first failure, or ErrClosed
		closed bool
	}
}

// CapacityFor returns the minimum capacity of a log that holds one record with a
// payload of payloadBytes.
func CapacityFor(payloadBytes int) int64 {
	return headerBytes + int64(recordBytes(uint64(payloadBytes)))
}

// recordBytes returns the capacity that a record with the given payload needs. It
// includes two marks: one for a Sync in progress during the append, one for the Sync
// that makes the record durable.
func recordBytes(payloadBytes uint64) uint64 {
	return recordHeaderBytes + payloadBytes + 2*markBytes
}

// Create creates a log of the given number. The file must not exist. Create does not
// sync the directory: the caller must do so before it relies on Sync.
func Create(name string, number uint64, opts *Options) (*Writer, error) {
	h := header{number: number, created: time.Now().UnixMilli(), id: newLogID()}
	return create(name, h, opts.withDefaults())
}

func create(name string, h header, o Options) (*Writer, error) {
	if least := CapacityFor(0); o.Capacity < least {
		return nil, errors.Newf("wal: create %s: capacity of %d bytes, want at least %d", name, o.Capacity, least)
	}
	file, err := o.FS.CreateAppendMap(name, o.Capacity)
	if err != nil {
		return nil, errors.Wrapf(err, "wal: create %s", name)
	}
	if _, err := file.Append(h.encode(o.Owner)); err != nil {
		err = errors.Wrapf(err, "wal: write the header of %s", name)
		return nil, errors.CombineErrors(err, errors.CombineErrors(file.Close(), o.FS.Remove(name)))
	}
	w := &Writer{name: name, file: file, id: h.id, seed: h.id.seed(o.Owner), capacity: o.Capacity}
	w.mu.buf = make([]byte, gatherBytes)
	w.size.Store(headerBytes)
	w.mu.dataTo = headerBytes
	return w, nil
}

// Append writes one record whose payload is the concatenation of the given slices. When
// it returns nil, the record survives the death of the process. It does not retain the
// slices and does not allocate.
//
// After ErrFull, ErrTooLarge and ErrSequence nothing was written.
func (w *Writer) Append(sequence uint64, payload ...[]byte) error {
	var length uint64
	for _, p := range payload {
		length += uint64(len(p))
	}
	if length > MaxPayloadBytes {
		return ErrTooLarge
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.err != nil:
		return w.mu.err
	case sequence <= w.mu.last:
		return ErrSequence
	case !w.Fits(int(length)):
		return ErrFull
	}
	if err := w.write(typeData, sequence, int(length), payload); err != nil {
		return err
	}
	w.mu.last = sequence
	w.mu.dataTo = w.size.Load()
	return nil
}

// Fits reports whether a record with a payload of payloadBytes fits, provided that no
// other goroutine appends first.
func (w *Writer) Fits(payloadBytes int) bool {
	return recordBytes(uint64(payloadBytes)) <= uint64(w.capacity-w.size.Load())
}

// Size returns the size of the log in bytes: header, records and marks.
func (w *Writer) Size() int64 { return w.size.Load() }

// Sync makes all records appended before the call durable and records the synced offset
// in the log.
func (w *Writer) Sync() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()

	w.mu.Lock()
	through, idle, err := w.size.Load(), w.mu.dataTo <= w.mu.synced, w.mu.err
	w.mu.Unlock()
	if err != nil || idle {
		return err
	}

	err = w.file.Sync(through) // Append may run concurrently

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return w.fail(errors.Wrapf(err, "wal: sync %s", w.name))
	}
	return w.mark(through)
}

// mark records in the log that it is durable up to the given offset.
func (w *Writer) mark(through int64) error {
	if w.mu.err != nil {
		return w.mu.err
	}
	var payload [markPayloadBytes]byte
	copy(payload[:], w.id[:])
	order.PutUint64(payload[markOffsetAt:], uint64(through))
	if err := w.write(typeMark, 0, len(payload), [][]byte{payload[:]}); err != nil {
		return err
	}
	w.mu.synced = through
	return nil
}

// write appends a record that fits.
func (w *Writer) write(kind byte, sequence uint64, length int, payload [][]byte) error {
	buf, total := w.mu.buf, recordHeaderBytes+length

	// The CRC precedes the bytes that it covers, so it is computed in a first pass.
	// After that pass a small record is already assembled in buf.
	putRecordHeader(buf, kind, sequence, length)
	crc, skip := w.seed, recordLengthAt
	_ = gather(buf, payload, func(piece []byte) error {
		crc = checksum.Update(crc, piece[skip:])
		skip = 0
		return nil
	})

	var err error
	if total <= len(buf) {
		order.PutUint32(buf[recordCRCAt:], crc)
		_, err = w.file.Append(buf[:total])
	} else {
		putRecordHeader(buf, kind, sequence, length)
		order.PutUint32(buf[recordCRCAt:], crc)
		err = gather(buf, payload, func(piece []byte) error {
			_, err := w.file.Append(piece)
			return err
		})
	}
	if err != nil {
		return w.fail(errors.Wrapf(err, "wal: append to %s", w.name))
	}
	w.size.Add(int64(total))
	return nil
}

// gather passes a record to emit in pieces of at most len(buf) bytes: the record header
// at the start of buf, then the payload. Copying through buf also keeps the caller's
// slices from escaping to the heap.
func gather(buf []byte, payload [][]byte, emit func(piece []byte) error) error {
	n := recordHeaderBytes
	for _, p := range payload {
		for len(p) > 0 {
			if n == len(buf) {
				if err := emit(buf); err != nil {
					return err
				}
				n = 0
			}
			copied := copy(buf[n:], p)
			n += copied
			p = p[copied:]
		}
	}
	return emit(buf[:n])
}

// fail makes err the result of all later calls, unless there is an earlier error.
func (w *Writer) fail(err error) error {
	if w.mu.err == nil {
		w.mu.err = err
	}
	return err
}

// Close truncates the file to the log's size and closes it. It does not sync. Later
// calls of Append and Sync return ErrClosed.
func (w *Writer) Close() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		return nil
	}
	w.mu.closed = true
	w.mu.err = ErrClosed
	return errors.Wrapf(w.file.Close(), "wal: close %s", w.name)
}
