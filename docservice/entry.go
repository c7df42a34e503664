package docservice

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/queue"
)

// indexEntryBytes is the size of an index value.
const indexEntryBytes = 20

// indexEntry is what the index holds for an id. Encoded, little-endian:
//
//	offset  0        4        8       10       12        16        20
//	        +--------+--------+--------+--------+--------+---------+
//	        | segment| block  | index  | flags  | expiry | stored  |
//	        | u32    | u32    | u16    | u16, 0 | u32    | u32     |
//	        +--------+--------+--------+--------+--------+---------+
//
// No flag is defined yet. An entry with a flag is from a newer version and is
// refused.
type indexEntry struct {
	address     queue.Address
	expiry      uint32 // Unix seconds; 0: never
	storedBytes uint32 // of the compressed document in its segment
}

// errIndexEntry: the value in the index is of a format that this version cannot read.
var errIndexEntry = errors.New("docservice: index entry of another version")

// append appends the encoded entry to dst.
func (e indexEntry) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(e.address.Segment))
	dst = binary.LittleEndian.AppendUint32(dst, e.address.Block)
	dst = binary.LittleEndian.AppendUint16(dst, e.address.Index)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, e.expiry)
	return binary.LittleEndian.AppendUint32(dst, e.storedBytes)
}

// decodeIndexEntry is the inverse of append.
func decodeIndexEntry(b []byte) (indexEntry, error) {
	if len(b) != indexEntryBytes {
		return indexEntry{}, errors.Wrapf(errIndexEntry, "%d bytes, want %d", len(b), indexEntryBytes)
	}
	if flags := binary.LittleEndian.Uint16(b[10:]); flags != 0 {
		return indexEntry{}, errors.Wrapf(errIndexEntry, "flags %#04x", flags)
	}
	return indexEntry{
		address: queue.Address{
			Segment: queue.SegmentID(binary.LittleEndian.Uint32(b)),
			Block:   binary.LittleEndian.Uint32(b[4:]),
			Index:   binary.LittleEndian.Uint16(b[8:]),
		},
		expiry:      binary.LittleEndian.Uint32(b[12:]),
		storedBytes: binary.LittleEndian.Uint32(b[16:]),
	}, nil
}

// expired reports whether the document has expired at now.
func (e indexEntry) expired(now time.Time) bool {
	return e.expiry != 0 && now.Unix() >= int64(e.expiry)
}

// expirySeconds converts a time of expiry to the field of an entry. It rounds up, so that
// no document expires early. The zero time means never, and so does a time after the year
// 2106, which the field cannot hold; a time before 1970 has always expired.
func expirySeconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	switch {
	case seconds < 1:
		return 1
	case seconds > math.MaxUint32:
		return 0
	}
	return uint32(seconds)
}
