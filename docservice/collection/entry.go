package collection

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/queue"
)

// indexEntryBytes is the size of an index value.
const indexEntryBytes = 28

// indexEntry is what the index holds for an id. Encoded, little-endian:
//
//	offset  0        4        8       10        14                  28
//	        +--------+--------+--------+---------+-------------------+
//	        | segment| block  | index  | expiry  | queue.Place       |
//	        | u32    | u32    | u16    | u32     |                   |
//	        +--------+--------+--------+---------+-------------------+
//
// The checksum of the Place, which covers the address and the document, is combined with the
// expiry by an exclusive or of guard. So a document that is found by its Place or has its checksum
// proves both, although the block of the index may have changed since it was verified.
type indexEntry struct {
	address queue.Address
	expiry  uint32      // Unix seconds; 0: never
	place   queue.Place // of the document in the file that was read
}

// entryOf returns the index entry of a document in the queue.
func entryOf(e *queue.Entry) indexEntry {
	return indexEntry{address: e.Address, expiry: expirySeconds(e.Expires), place: e.Place}
}

// wanted returns the document of the entry, for a fetch.
func (e *indexEntry) wanted(id []byte) queue.Wanted {
	return queue.Wanted{ID: id, Address: e.address, Place: e.place}
}

// errIndexEntry: the value in the index is of a format that this version cannot read.
var errIndexEntry = errors.New("docservice: index entry of another version")

// append appends the encoded entry to dst.
func (e indexEntry) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(e.address.Segment))
	dst = binary.LittleEndian.AppendUint32(dst, e.address.Block)
	dst = binary.LittleEndian.AppendUint16(dst, e.address.Index)
	dst = binary.LittleEndian.AppendUint32(dst, e.expiry)
	place := e.place.Mask(guard(e.expiry))
	return append(dst, place[:]...)
}

// guard is the value of an expiry in the checksum of a Place. Other expiries have other values, and
// 0 has 0. The factor is 2^32 divided by the golden ratio: one bit of the expiry changes many.
func guard(expiry uint32) uint32 { return expiry * 0x9e3779b1 }

// decodeIndexEntry is the inverse of append.
func decodeIndexEntry(b []byte) (indexEntry, error) {
	if len(b) != indexEntryBytes {
		return indexEntry{}, errors.Wrapf(errIndexEntry, "%d bytes, want %d", len(b), indexEntryBytes)
	}
	expiry := binary.LittleEndian.Uint32(b[10:])
	return indexEntry{
		address: queue.Address{
			Segment: queue.SegmentID(binary.LittleEndian.Uint32(b)),
			Block:   binary.LittleEndian.Uint32(b[4:]),
			Index:   binary.LittleEndian.Uint16(b[8:]),
		},
		expiry: expiry,
		place:  queue.Place(b[14:]).Mask(guard(expiry)),
	}, nil
}

// sameDocument reports whether the entries are of the same document: an address is never used
// again. The place depends on the file that was read, since a compaction can encode a document
// again.
func (e indexEntry) sameDocument(other indexEntry) bool {
	return e.address == other.address && e.expiry == other.expiry
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
