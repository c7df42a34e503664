package wal

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// gatherBytes is the size of the buffer in which the parts of a record come
// together. A record that fits is handed to the file system in one piece.
const gatherBytes = 32 << 10

// Writer appends records to a log. The first error of the file is final: every
// later Append and Sync returns it, and the caller goes on in a new log.
type Writer struct {
	name     string
	file     vfs.AppendMap
	owner    []byte
	id       logID
	seed     uint32
	capacity int64

	syncing sync.Mutex   // held by Sync and Close; taken before mu
	size    atomic.Int64 // bytes in the log; changed under mu

	mu struct {
		sync.Mutex
		buf    []byte // gatherBytes
		dataTo int64  // end of the last record that is not a mark
		synced int64  // what the last mark says
		last   uint64 // sequence number of the last record, 0 before the first
		err    error  // the first failure, or ErrClosed
		closed bool
	}
}

// CapacityFor returns the capacity that a log needs at least to hold one record
// with a payload of the given bytes.
func CapacityFor(payloadBytes int) int64 {
	return headerBytes + int64(recordBytes(uint64(payloadBytes)))
}

// recordBytes is what a record of the given payload takes from the capacity.
// It keeps room for two marks: that of a Sync that is under way while the record
// is appended, and that of the Sync which makes the record durable.
func recordBytes(payloadBytes uint64) uint64 {
	return recordHeaderBytes + payloadBytes + 2*markBytes
}

// Create makes a new log of the given number. The file must not exist yet. Its
// directory is not synced: that is up to the caller, before it relies on Sync.
func Create(name string, number uint64, opts *Options) (*Writer, error) {
	return create(name, newHeader(number), opts.withDefaults())
}

func newHeader(number uint64) header {
	return header{number: number, created: time.Now().UnixMilli(), id: newLogID()}
}

func create(name string, h header, o Options) (*Writer, error) {
	if least := CapacityFor(0); o.Capacity < least {
		return nil, errors.Newf("wal: create %s: capacity of %d bytes, want at least %d", name, o.Capacity, least)
	}
	file, err := o.FS.CreateAppendMap(name, o.Capacity)
	if err != nil {
		return nil, errors.Wrapf(err, "wal: create %s", name)
	}
	w, err := begin(name, h, o.Owner, file)
	if err != nil {
		return nil, errors.CombineErrors(err, errors.CombineErrors(file.Close(), o.FS.Remove(name)))
	}
	return w, nil
}

// begin writes the header of a log to a file that nothing was appended to.
func begin(name string, h header, owner []byte, file vfs.AppendMap) (*Writer, error) {
	w := &Writer{name: name, file: file, owner: owner, id: h.id, seed: h.id.seed(owner), capacity: file.Capacity()}
	w.mu.buf = make([]byte, gatherBytes)
	if _, err := file.Append(h.encode(owner)); err != nil {
		return nil, errors.Wrapf(err, "wal: write the header of %s", name)
	}
	w.size.Store(headerBytes)
	w.mu.dataTo = headerBytes
	return w, nil
}

// Append writes one record, whose payload is the given slices one behind the
// other. When it returns nil the record survives the death of the process. It
// keeps none of the slices and allocates nothing.
//
// ErrFull, ErrTooLarge and ErrSequence mean that nothing was written.
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

// Fits tells whether a record with a payload of the given bytes has room, unless
// another goroutine appends one first.
func (w *Writer) Fits(payloadBytes int) bool {
	return recordBytes(uint64(payloadBytes)) <= uint64(w.capacity-w.size.Load())
}

// Size returns the bytes of the log so far: header, records and marks.
func (w *Writer) Size() int64 { return w.size.Load() }

// Sync makes everything appended before the call survive loss of power, and
// records in the log how far that is.
func (w *Writer) Sync() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()

	w.mu.Lock()
	through, idle, err := w.size.Load(), w.mu.dataTo <= w.mu.synced, w.mu.err
	w.mu.Unlock()
	if err != nil || idle {
		return err
	}

	err = w.file.Sync(through) // while Append goes on

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return w.fail(errors.Wrapf(err, "wal: sync %s", w.name))
	}
	return w.mark(through)
}

// mark notes in the log that it is durable up to the given offset.
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

// write appends a record that is known to fit.
func (w *Writer) write(kind byte, sequence uint64, length int, payload [][]byte) error {
	buf, total := w.mu.buf, recordHeaderBytes+length

	// The CRC comes first in the file, so it is taken in a pass of its own. A
	// record that fits the buffer is then there already.
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

// gather hands a record to emit in pieces of at most len(buf) bytes: the record
// header that buf begins with, and the payload. Copying through buf also keeps
// the caller's slices from escaping to the heap.
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

// fail makes err the answer to everything that follows, unless there is one.
func (w *Writer) fail(err error) error {
	if w.mu.err == nil {
		w.mu.err = err
	}
	return err
}

// Close releases the file and cuts it to its size. It does not sync. After it,
// Append and Sync return ErrClosed.
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
