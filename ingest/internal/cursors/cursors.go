// Package cursors decodes the cursors of sources: four bytes of magic, a version, and fields that
// are little-endian.
package cursors

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Kind is a kind of cursor.
type Kind struct {
	Magic   string
	Version byte   // the newest
	Name    string // of the source, for messages
	// Foreign is the error of a cursor of another kind, Damaged that of one of this kind that
	// cannot be decoded.
	Foreign, Damaged error
}

// Fields are the fields of a cursor that were not decoded yet. After a failure they are zero.
type Fields struct {
	kind   *Kind
	rest   []byte
	failed bool
}

// Open returns the version and the fields of a cursor.
func (k *Kind) Open(data []byte) (version byte, f *Fields, err error) {
	rest, ours := bytes.CutPrefix(data, []byte(k.Magic))
	switch {
	case !ours:
		return 0, nil, k.Foreign
	case len(rest) == 0:
		return 0, nil, k.Damaged
	case rest[0] > k.Version:
		return 0, nil, fmt.Errorf("the queue's cursor of %s is of version %d, newer than this program; use a newer docstore-updater", k.Name, rest[0])
	}
	return rest[0], &Fields{kind: k, rest: rest[1:]}, nil
}

// Append appends the beginning of a cursor of the newest version to dst.
func (k *Kind) Append(dst []byte) []byte { return append(append(dst, k.Magic...), k.Version) }

// End returns Damaged if a field was not valid, or bytes are left.
func (f *Fields) End() error {
	if f.failed || len(f.rest) > 0 {
		return f.kind.Damaged
	}
	return nil
}

// Rest returns the rest, of at most limit bytes.
func (f *Fields) Rest(limit int) []byte {
	if len(f.rest) > limit {
		f.Fail()
	}
	return f.Take(len(f.rest))
}

// More reports whether bytes are left.
func (f *Fields) More() bool { return len(f.rest) > 0 }

// Fail makes the cursor a damaged one.
func (f *Fields) Fail() { f.failed, f.rest = true, nil }

// Take returns the next n bytes, which belong to the cursor.
func (f *Fields) Take(n int) []byte {
	if n > len(f.rest) {
		f.Fail()
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

// Byte returns a byte of at most limit.
func (f *Fields) Byte(limit int) int {
	b := f.Take(1)
	if len(b) == 0 {
		return 0
	}
	if int(b[0]) > limit {
		f.Fail()
		return 0
	}
	return int(b[0])
}

// Uint16 returns a number of 2 bytes.
func (f *Fields) Uint16() uint16 {
	if b := f.Take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// Uint32 returns a number of 4 bytes.
func (f *Fields) Uint32() uint32 {
	if b := f.Take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Uint64 returns a number of 8 bytes.
func (f *Fields) Uint64() uint64 {
	if b := f.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint returns a varint of at most limit.
func (f *Fields) Uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 || v > limit {
		f.Fail()
		return 0
	}
	f.rest = f.rest[n:]
	return v
}
