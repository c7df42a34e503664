package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"docstore/ingest"
	"docstore/ingest/internal/cursors"
	"docstore/ingest/postgres/pgoutput"
	"docstore/queue"
)

// cursor is a position in a table and its changes. Little-endian:
//
//	4    "DSPG"
//	u8   version, 1
//	u8   phase: 0 the rows, 1 the changes, 2 the rows of a query
//	u64  system identifier of the database cluster
//	u32  timeline
//	u32  OID of the table
//	u32  OID of the table's entry in the publication
//	u32  CRC-32C of the names of the key columns
//	u64  LSN
//	u64  index
//	u32  attempt
//	u64  anchor: LSN of a commit record, or where the changes begin
//	u64  time of that commit, microseconds since 2000
//	u32  id of that transaction; 0: none is known
//	u32  CRC-32C of the text of the query; 0: unknown
//	u64  fingerprint of the partitions; 0: unknown, or the table is not partitioned
//	u32  CRC-32C of the names and types of the columns, and of the table's file; 0: unknown
//	u8   length of the name of the slot, and the name
//	...  key before the attempt, key: each u16 bytes, and the values as in appendKey
//
// Among the changes, all transactions whose commit record is before LSN are included, and of
// the transaction whose commit record is at LSN the first index changes: each change counts as
// two, the removal of the old id and the document.
//
// Among the rows, LSN is where the changes will begin, index is the number of rows read, and key
// the last row's. Each process that reads rows begins another attempt behind the key that the
// earlier one had reached.
//
// The anchor is the last transaction at or before LSN that changed the table, and tells the log
// from another one of the same length; see history. Version 0 has no fields between attempt and
// the name of the slot. It is read, and what they say is unknown.
type cursor struct {
	phase   phase
	origin  origin
	lsn     pgoutput.LSN
	index   uint64
	attempt uint32
	anchor  anchor
	base    []byte // key before the first row of the attempt; empty: none
	key     []byte // key of the last row; empty: none
}

// origin identifies what a cursor refers to.
type origin struct {
	system      uint64
	timeline    uint32
	table       uint32
	publication uint32
	keys        uint32
	query       uint32
	partitions  uint64
	columns     uint32
	slot        string
}

type phase byte

const (
	phaseRows phase = iota
	phaseChanges
	phaseQuery
	phases
)

const (
	// maxKeyBytes bounds an encoded key in a cursor. The id of a row with a longer key is
	// longer than queue.MaxIDBytes in nearly all cases; its cursor has the key of an earlier row.
	maxKeyBytes = 1900
	// maxSlotName is PostgreSQL's limit.
	maxSlotName = 63
)

// The longest cursor fits into a block.
const _ = uint(queue.MaxCursorBytes - (4 + 2 + 8 + 4*4 + 2*8 + 4 + 8 + 8 + 4 + 4 + 8 + 4 + 1 + maxSlotName + 2*(2+maxKeyBytes)))

// append appends the encoded cursor to dst.
func (c *cursor) append(dst []byte) []byte {
	dst = append(cursorKind.Append(dst), byte(c.phase))
	dst = binary.LittleEndian.AppendUint64(dst, c.origin.system)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.timeline)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.table)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.publication)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.keys)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.lsn))
	dst = binary.LittleEndian.AppendUint64(dst, c.index)
	dst = binary.LittleEndian.AppendUint32(dst, c.attempt)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.anchor.lsn))
	dst = binary.LittleEndian.AppendUint64(dst, c.anchor.time)
	dst = binary.LittleEndian.AppendUint32(dst, c.anchor.xid)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.query)
	dst = binary.LittleEndian.AppendUint64(dst, c.origin.partitions)
	dst = binary.LittleEndian.AppendUint32(dst, c.origin.columns)
	dst = append(append(dst, byte(len(c.origin.slot))), c.origin.slot...)
	for _, key := range [][]byte{c.base, c.key} {
		dst = append(binary.LittleEndian.AppendUint16(dst, uint16(len(key))), key...)
	}
	return dst
}

var errForeignCursor = errors.New("the queue's cursor was not written by a PostgreSQL source; use another queue, or append from the start with --resume=false")

var cursorKind = cursors.Kind{Magic: "DSPG", Version: 1, Name: "PostgreSQL", Foreign: errForeignCursor, Damaged: errForeignCursor}

// parseCursor decodes the result of append.
func parseCursor(data []byte) (c cursor, err error) {
	version, d, err := cursorKind.Open(data)
	if err != nil {
		return c, err
	}
	c.phase = phase(d.Byte(int(phases) - 1))
	c.origin = origin{system: d.Uint64(), timeline: d.Uint32(), table: d.Uint32(), publication: d.Uint32(), keys: d.Uint32()}
	c.lsn, c.index, c.attempt = pgoutput.LSN(d.Uint64()), d.Uint64(), d.Uint32()
	c.anchor.lsn = c.lsn
	if version > 0 {
		c.anchor = anchor{lsn: pgoutput.LSN(d.Uint64()), time: d.Uint64(), xid: d.Uint32()}
		c.origin.query, c.origin.partitions, c.origin.columns = d.Uint32(), d.Uint64(), d.Uint32()
	}
	c.origin.slot = string(d.Take(d.Byte(math.MaxUint8)))
	c.base = slices.Clone(d.Take(int(d.Uint16())))
	c.key = slices.Clone(d.Take(int(d.Uint16())))
	return c, d.End()
}

// String describes the position for messages.
func (c *cursor) String() string {
	if c.phase != phaseChanges {
		return fmt.Sprintf("row %d", c.index)
	}
	return fmt.Sprintf("change %d of the transaction committed at %s", (c.index+1)/2, c.lsn)
}

// includes reports whether the record after which the cursor is other is before c. Rows are
// included only within an attempt: a row that is read again does no harm, because all changes
// since the first attempt follow.
func (c *cursor) includes(other *cursor) bool {
	switch {
	case c.phase != other.phase:
		return c.phase == phaseChanges
	case c.phase == phaseChanges:
		return !c.before(other)
	}
	return c.attempt == other.attempt && c.index >= other.index
}

// before orders cursors among the changes.
func (c *cursor) before(other *cursor) bool {
	return c.lsn < other.lsn || c.lsn == other.lsn && c.index < other.index
}

// earliest returns a cursor that is at or before all others. There is at least one.
func earliest(cursors []cursor) cursor {
	first := cursors[0]
	for _, c := range cursors[1:] {
		switch {
		case c.phase != first.phase:
			if first.phase == phaseChanges {
				first = c
			}
		case c.phase == phaseChanges:
			if c.before(&first) {
				first = c
			}
		default:
			first = earlierRows(first, c)
		}
	}
	return first
}

// earlierRows returns a cursor at or before a and b, which are among the rows. When an attempt
// begins, all shards have the rows up to its base, and the cursors that stay in an earlier
// attempt are at its base or behind it.
func earlierRows(a, b cursor) cursor {
	if a.attempt < b.attempt {
		a, b = b, a
	}
	if a.attempt == b.attempt {
		if b.index < a.index {
			return b
		}
		return a
	}
	a.key, a.index = a.base, 0
	return a
}

// latest returns the last one of cursors among the changes; nil: all are among the rows.
func latest(cursors []cursor) *cursor {
	var last *cursor
	for i := range cursors {
		if c := &cursors[i]; c.phase == phaseChanges && (last == nil || last.before(c)) {
			last = c
		}
	}
	return last
}

// appendKey appends the encoded key of a row: the values of its columns in PostgreSQL's text
// form, each after its length.
func appendKey(dst []byte, values [][]byte) []byte {
	for _, v := range values {
		dst = append(binary.AppendUvarint(dst, uint64(len(v))), v...)
	}
	return dst
}

// parseKey returns the values of an encoded key.
func parseKey(key []byte) ([][]byte, error) {
	var values [][]byte
	for len(key) > 0 {
		n, size := binary.Uvarint(key)
		if size <= 0 || n > uint64(len(key)-size) {
			return nil, errForeignCursor
		}
		end := size + int(n)
		values = append(values, key[size:end:end])
		key = key[end:]
	}
	return values, nil
}

// Position decodes a cursor.
func (o *Opener) Position(data []byte) (ingest.Position, error) {
	c, err := parseCursor(data)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// Earliest returns a cursor at or before each of the cursors. The next Open checks that the log
// of the server also contains the changes before the others.
func (o *Opener) Earliest(data [][]byte) ([]byte, error) {
	var cursors []cursor
	for _, d := range data {
		if len(d) == 0 {
			continue
		}
		c, err := parseCursor(d)
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, c)
		if a, b := c.origin, cursors[0].origin; a.system != b.system || a.table != b.table || a.slot != b.slot {
			return nil, errors.New("the cursors of the shards are of different sources")
		}
	}
	if len(cursors) == 0 {
		return nil, nil
	}
	o.latest.Store(latest(cursors))
	if len(cursors) < len(data) {
		return nil, nil
	}
	first := earliest(cursors)
	return first.append(nil), nil
}

// Describe describes a stored cursor. The error says that it is none of PostgreSQL.
func Describe(stored []byte) (string, error) {
	c, err := parseCursor(stored)
	if err != nil {
		return "", err
	}
	return c.String(), nil
}
