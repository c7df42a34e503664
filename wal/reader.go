package wal

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Result describes a replayed log.
type Result struct {
	Number  uint64 // of the log, 0 without a valid header
	First   uint64 // first sequence number, 0 without records
	Last    uint64 // last sequence number, 0 without records
	Records int

	ValidBytes int64 // header, records and marks before the first invalid record
	Synced     int64 // the highest offset below which the log is known to be durable
	// Torn reports that there are bytes after the last valid record, or that there is
	// no valid header. After a clean end the file ends or continues with zeros.
	Torn bool
}

// Replay calls fn for each record of a log in the order of the appends, up to the first
// invalid record. The payload is valid until fn returns. Replay stops at the first
// error of fn and returns it unchanged.
//
// A torn tail is not an error. Damage below the synced offset is a *CorruptionError; fn
// has received the records before it and Result describes them. Memory use is that of
// the largest record.
func Replay(name string, opts *Options, fn func(sequence uint64, payload []byte) error) (Result, error) {
	o := opts.withDefaults()
	file, err := o.FS.Open(name)
	if err != nil {
		return Result{}, errors.Wrapf(err, "wal: open %s", name)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Result{}, errors.Wrapf(err, "wal: stat %s", name)
	}
	r := replay{name: name, owner: o.Owner, in: window{file: file, size: info.Size}, fn: fn}
	err = r.run(o.Number)
	return r.result, err
}

// replay is the state of one Replay.
type replay struct {
	name   string
	owner  []byte
	in     window
	fn     func(sequence uint64, payload []byte) error
	id     logID
	seed   uint32
	result Result
}

func (r *replay) run(number uint64) error {
	if found, err := r.header(number); err != nil || !found {
		return err
	}
	// If a mark covers the first invalid record, read again from there.
	for last := int64(0); ; last = r.result.ValidBytes {
		bad, err := r.records()
		if err != nil {
			return err
		}
		if r.result.ValidBytes == last {
			return r.corrupt(last, "%s, in a log that was synced up to offset %d", bad, r.result.Synced)
		}
		if err := r.scan(r.result.ValidBytes, &r.id); err != nil {
			return err
		}
		if r.result.Synced <= r.result.ValidBytes {
			return nil
		}
		r.in.forget()
	}
}

// header reads the header and reports whether there is one: a process can die before it
// is written, and a power cut can lose or tear its page.
func (r *replay) header(number uint64) (found bool, err error) {
	b, err := r.in.at(0, headerBytes+recordHeaderBytes)
	if err != nil {
		return false, r.wrap(err)
	}
	if len(b) < headerBytes {
		r.result.Torn = true
		return false, nil
	}
	h, err := decodeHeader(b[:headerBytes], r.owner)
	switch {
	case errors.Is(err, ErrNewerVersion):
		return false, r.wrap(err)
	case err != nil && (unfinished(b) || allZero(b[headerBytes:])):
		return false, r.noHeader(err)
	case err != nil:
		return false, r.corrupt(0, "%s", err)
	case number != 0 && h.number != number:
		return false, r.corrupt(0, "log number %d, want %d", h.number, number)
	}
	r.id, r.seed = h.id, h.id.seed(r.owner)
	r.result.Number = h.number
	r.result.ValidBytes = headerBytes
	return true, nil
}

// noHeader handles a log whose header is invalid in a way that a crash can cause. The
// log is empty, unless a mark shows that it was synced.
func (r *replay) noHeader(bad error) error {
	if err := r.scan(0, nil); err != nil {
		return err
	}
	r.result.Torn = true
	if r.result.Synced > 0 {
		return r.corrupt(0, "%s, in a log that was synced up to offset %d", bad, r.result.Synced)
	}
	return nil
}

// records passes records to fn up to the first invalid one and describes why that one
// is invalid.
func (r *replay) records() (bad string, err error) {
	for {
		bad, err := r.record()
		if err != nil || bad != "" {
			return bad, err
		}
	}
}

// record handles the record at ValidBytes. If it is invalid, bad says why. A record
// with a valid CRC and impossible contents is an error, because no crash can produce
// it.
func (r *replay) record() (bad string, err error) {
	at := r.result.ValidBytes
	b, err := r.in.at(at, recordHeaderBytes)
	if err != nil {
		return "", r.wrap(err)
	}
	if len(b) < recordHeaderBytes {
		return "the file ends", nil
	}
	if allZero(b) {
		return "a record that was never written", nil
	}
	length := uint64(order.Uint32(b[recordLengthAt:]))
	if left := uint64(r.in.size - at - recordHeaderBytes); length > min(left, MaxPayloadBytes) {
		return fmt.Sprintf("a record of %d bytes where %d are left", length, left), nil
	}
	total := recordHeaderBytes + int(length)
	if b, err = r.in.at(at, total); err != nil {
		return "", r.wrap(err)
	}
	if len(b) < total {
		return "the file ends", nil // truncated since it was opened
	}
	if got, want := checksum.Update(r.seed, b[recordLengthAt:]), order.Uint32(b[recordCRCAt:]); got != want {
		return fmt.Sprintf("record checksum %08x, want %08x", got, want), nil
	}
	if !allZero(b[recordReservedAt:recordSequenceAt]) {
		return "", r.corrupt(at, "reserved bytes of a record are not zero")
	}
	sequence, payload := order.Uint64(b[recordSequenceAt:]), b[recordHeaderBytes:]
	switch kind := b[recordTypeAt]; kind {
	case typeData:
		err = r.data(at, sequence, payload)
	case typeMark:
		err = r.mark(at, sequence, payload)
	default:
		err = r.corrupt(at, "record type %d", kind)
	}
	if err == nil {
		r.result.ValidBytes += int64(total)
	}
	return "", err
}

func (r *replay) data(at int64, sequence uint64, payload []byte) error {
	if sequence <= r.result.Last {
		return r.corrupt(at, "sequence number %d after %d", sequence, r.result.Last)
	}
	if err := r.fn(sequence, payload); err != nil {
		return err
	}
	if r.result.Records == 0 {
		r.result.First = sequence
	}
	r.result.Last = sequence
	r.result.Records++
	return nil
}

func (r *replay) mark(at int64, sequence uint64, payload []byte) error {
	synced, ok := decodeMark(payload, r.id, at)
	if !ok || sequence != 0 {
		return r.corrupt(at, "invalid sync mark")
	}
	r.result.Synced = max(r.result.Synced, synced)
	return nil
}

// scan searches the log from an offset to its end for marks and for non-zero bytes. If
// id is nil, because the header is lost, every mark of the same owner counts as one of
// this log.
func (r *replay) scan(from int64, id *logID) error {
	r.result.Torn = false
	for at := from; at < r.in.size; {
		b, err := r.in.at(at, windowBytes)
		if err != nil {
			return r.wrap(err)
		}
		r.result.Torn = r.result.Torn || !allZero(b)
		r.marks(at, b, id)
		if len(b) < windowBytes {
			return nil
		}
		at += windowBytes - (markBytes - 1) // a mark may cross the end of b
	}
	return nil
}

// marks processes the marks that lie completely in b, which is at offset at.
func (r *replay) marks(at int64, b []byte, id *logID) {
	for next := 0; ; next++ {
		i := bytes.Index(b[next:], markPattern)
		if i < 0 {
			return
		}
		next += i
		start := next - recordLengthAt
		if start < 0 || len(b)-start < markBytes {
			continue
		}
		record := b[start : start+markBytes]
		payload := record[recordHeaderBytes:]
		log := logID(payload[:markOffsetAt])
		if id != nil && log != *id {
			continue
		}
		synced, ok := decodeMark(payload, log, at+int64(start))
		if ok && checksum.Update(log.seed(r.owner), record[recordLengthAt:]) == order.Uint32(record[recordCRCAt:]) {
			r.result.Synced = max(r.result.Synced, synced)
		}
	}
}

func (r *replay) wrap(err error) error { return errors.Wrapf(err, "wal: read %s", r.name) }

func (r *replay) corrupt(offset int64, format string, args ...any) error {
	return &CorruptionError{Path: r.name, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// windowBytes is the size of a read.
const windowBytes = 256 << 10

// window reads a file sequentially through a buffer.
type window struct {
	file  vfs.File
	size  int64  // of the file
	buf   []byte // the bytes of the file from offset start
	start int64
}

// at returns n bytes of the file from an offset, or fewer at the end of the file. They
// are valid until the next call.
func (w *window) at(offset int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), w.size-offset)))
	if offset >= w.start && offset+int64(n) <= w.start+int64(len(w.buf)) {
		return w.buf[offset-w.start:][:n], nil
	}
	want := int(min(int64(max(n, windowBytes)), w.size-offset))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	read, err := w.file.ReadAt(w.buf[:want], offset)
	w.buf, w.start = w.buf[:read], offset
	if errors.Is(err, io.EOF) {
		w.size, err = offset+int64(read), nil // truncated by its writer
	}
	if err != nil {
		return nil, err
	}
	return w.buf[:min(n, read)], nil
}

// forget discards the buffer: the next call of at reads from the file.
func (w *window) forget() { w.buf = w.buf[:0] }
