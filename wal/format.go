package wal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
)

// MaxPayloadBytes is the largest payload of a record.
const MaxPayloadBytes = 1 << 30

// The header of a log. Its size and the offsets of magic, crc and version are the same
// in every version, so a newer log can be distinguished from a damaged one.
const (
	magic   = "DOCSWAL\n"
	version = 0
	kindLog = 1 // the only kind so far

	headerBytes = 64

	headerCRCAt      = 8
	headerVersionAt  = 12
	headerKindAt     = 14
	headerNumberAt   = 16
	headerCreatedAt  = 24
	headerIDAt       = 32
	headerReservedAt = 48
)

// A record.
const (
	recordHeaderBytes = 20

	recordCRCAt      = 0
	recordLengthAt   = 4
	recordTypeAt     = 8
	recordReservedAt = 9
	recordSequenceAt = 12
)

// Record types.
const (
	typeNone = 0 // never written
	typeData = 1
	typeMark = 2
)

// A sync mark: a record of sequence 0 whose payload is the log id and the
// offset below which the log is durable.
const (
	markPayloadBytes = 24
	markBytes        = recordHeaderBytes + markPayloadBytes
	markOffsetAt     = 16 // in the payload, after the log id
)

// markPattern is the part that all marks share: from the length up to the payload.
var markPattern = []byte{
	markPayloadBytes, 0, 0, 0, typeMark, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
}

var order = binary.LittleEndian

// logID is a random id, one per log. Its last byte is never zero, and the rest of the
// header after it is always zero: a zero last byte shows that the header was not
// completely written, as opposed to damaged.
type logID [16]byte

func newLogID() (id logID) {
	rand.Read(id[:])
	id[len(id)-1] |= 1
	return id
}

// seed returns the initial CRC of the log's records.
func (id logID) seed(owner []byte) uint32 { return checksum.Of(id[:], owner) }

// header is the decoded header of a log.
type header struct {
	number  uint64
	created int64 // Unix milliseconds
	id      logID
}

func (h header) encode(owner []byte) []byte {
	b := make([]byte, headerBytes)
	copy(b, magic)
	order.PutUint16(b[headerVersionAt:], version)
	order.PutUint16(b[headerKindAt:], kindLog)
	order.PutUint64(b[headerNumberAt:], h.number)
	order.PutUint64(b[headerCreatedAt:], uint64(h.created))
	copy(b[headerIDAt:], h.id[:])
	order.PutUint32(b[headerCRCAt:], checksum.Of(b[headerVersionAt:], owner))
	return b
}

// decodeHeader decodes b, which has headerBytes. The error is ErrNewerVersion or
// describes the damage.
func decodeHeader(b, owner []byte) (header, error) {
	if got := b[:len(magic)]; string(got) != magic {
		return header{}, fmt.Errorf("not a write-ahead log: magic %q, want %q", got, magic)
	}
	if got, want := checksum.Of(b[headerVersionAt:], owner), order.Uint32(b[headerCRCAt:]); got != want {
		return header{}, fmt.Errorf("header checksum %08x, want %08x, or it is the log of another store", got, want)
	}
	if v := order.Uint16(b[headerVersionAt:]); v > version {
		return header{}, errors.Wrapf(ErrNewerVersion, "version %d, want at most %d", v, version)
	}
	if kind := order.Uint16(b[headerKindAt:]); kind != kindLog {
		return header{}, fmt.Errorf("kind %d, want %d", kind, kindLog)
	}
	if !allZero(b[headerReservedAt:]) {
		return header{}, errors.New("reserved bytes of the header are not zero")
	}
	return header{
		number:  order.Uint64(b[headerNumberAt:]),
		created: int64(order.Uint64(b[headerCreatedAt:])),
		id:      logID(b[headerIDAt:headerReservedAt]),
	}, nil
}

// putRecordHeader writes a record header without the CRC at the start of b.
func putRecordHeader(b []byte, kind byte, sequence uint64, length int) {
	order.PutUint32(b[recordLengthAt:], uint32(length))
	order.PutUint32(b[recordTypeAt:], uint32(kind)) // and the reserved bytes
	order.PutUint64(b[recordSequenceAt:], sequence)
}

// unfinished reports whether the header in b was not completely written: a new file has
// zeros there.
func unfinished(b []byte) bool { return b[headerReservedAt-1] == 0 }

// decodeMark returns the synced offset in the payload of a mark at offset at of the log
// with the given id. A mark covers only bytes before itself.
func decodeMark(payload []byte, id logID, at int64) (synced int64, ok bool) {
	if len(payload) != markPayloadBytes || !bytes.Equal(payload[:markOffsetAt], id[:]) {
		return 0, false
	}
	v := order.Uint64(payload[markOffsetAt:])
	if v < headerBytes || v > uint64(at) {
		return 0, false
	}
	return int64(v), true
}

var zero = []byte{0}

// allZero uses bytes.Count because that is vectorized.
func allZero(b []byte) bool { return bytes.Count(b, zero) == len(b) }
