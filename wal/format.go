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

// The header of a log. Its size, and the place of magic, crc and version in it,
// are the same in every version, so that a newer log is told from a damaged one.
const (
	magic   = "DOCSWAL\n"
	version = 0
	kindLog = 1 // the only kind of file so far

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

// The types of records.
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
	markOffsetAt     = 16 // in the payload, behind the log id
)

// markPattern is what all marks have behind their CRC, from the length up to
// the payload.
var markPattern = []byte{
	markPayloadBytes, 0, 0, 0, typeMark, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
}

var order = binary.LittleEndian

// logID is drawn at random for each log. Its last byte, behind which a header has zeros
// only, is not zero: so a header whose writing was cut short is told from one that was
// damaged.
type logID [16]byte

func newLogID() (id logID) {
	rand.Read(id[:])
	id[len(id)-1] |= 1
	return id
}

// seed is what the CRCs of a log's records start from.
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

// decodeHeader returns the header in b, which has headerBytes. The error is
// ErrNewerVersion or says what is damaged.
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

// putRecordHeader writes the header of a record at the start of b, all but
// the CRC.
func putRecordHeader(b []byte, kind byte, sequence uint64, length int) {
	order.PutUint32(b[recordLengthAt:], uint32(length))
	order.PutUint32(b[recordTypeAt:], uint32(kind)) // and the reserved bytes
	order.PutUint64(b[recordSequenceAt:], sequence)
}

// unfinished tells whether what stands in the place of a header was never written to
// its end. A new file has zeros there, and so has one that Retire has left.
func unfinished(b []byte) bool { return b[headerReservedAt-1] == 0 }

// decodeMark returns the offset in the payload of a mark that lies at offset at
// in the log of the given id. A mark can tell only of bytes before itself.
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

// allZero counts, because that is done many bytes at a time.
func allZero(b []byte) bool { return bytes.Count(b, zero) == len(b) }
