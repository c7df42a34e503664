package table

import (
	"bytes"
	"encoding/binary"

	"docstore/internal/checksum"
	"docstore/lsm/internal/kv"
)

// A table is immutable. Its format (docs/format/table.md):
//
//	header | block ... | index | filter | properties | footer
//
//	header      magic 8 | crc | version u16 | kind u16 = 1 | number u64 | store id 16 | reserved u64
//	block       see block.go
//	index       count u32 | shared u32 | count x (prefix u64, block offset u64, key end u64) | last keys of the blocks
//	filter      see package bloom
//	properties  entries u64 | tombstones u64 | key bytes u64 | value bytes u64 |
//	            first sequence u64 | last sequence u64 | min key length u32 | max key length u32 | min key | max key
//	footer      magic 8 | crc | version u16 | kind u16 = 2 | 3 x (offset u64, length u64, crc, reserved u32) | file bytes u64
//
// Numbers are little-endian. A crc is a CRC-32C of the bytes after it to the end of its
// part; those of index, filter and properties are in the footer. The crc of a block
// also covers its identity.
const (
	version = 0

	headerBytes  = 48
	footerBytes  = 16 + 3*sectionBytes + 8
	sectionBytes = 24

	kindHeader = 1
	kindFooter = 2

	indexHeaderBytes      = 8
	indexRecordBytes      = 24
	propertiesHeaderBytes = 6*8 + 2*4
)

var (
	magic       = [8]byte{'L', 'S', 'M', 't', 'a', 'b', 'l', 'e'}
	footerMagic = [8]byte{'L', 'S', 'M', 't', 'f', 'o', 'o', 't'}
	order       = binary.LittleEndian
)

// StoreID identifies the store of a file.
type StoreID [16]byte

// Facts is the manifest's description of a table.
type Facts struct {
	Number        uint64
	FileBytes     uint64
	Entries       uint64 // including tombstones
	Tombstones    uint64
	KeyBytes      uint64 // total size of the keys
	ValueBytes    uint64
	FirstSequence uint64 // oldest write in the table
	LastSequence  uint64
	FooterCRC     uint32 // identifies the file: the footer covers all other parts
}

// section locates one of the parts after the blocks.
type section struct {
	offset, length uint64
	crc            uint32
}

// footer is the last part of a table. Readers decode it first.
type footer struct {
	index, filter, properties section
	fileBytes                 uint64
}

func encodeHeader(number uint64, id StoreID) []byte {
	b := make([]byte, headerBytes)
	copy(b, magic[:])
	order.PutUint16(b[12:], version)
	order.PutUint16(b[14:], kindHeader)
	order.PutUint64(b[16:], number)
	copy(b[24:], id[:])
	order.PutUint32(b[8:], checksum.Of(b[12:]))
	return b
}

// headerCRC returns the checksum of a table's header.
func headerCRC(header []byte) uint32 { return order.Uint32(header[8:]) }

// FormatFault is the error of a decoder. The reader converts it to a CorruptionError or
// ErrNewerVersion.
type FormatFault struct {
	Reason string
	Newer  bool
}

// CheckPreamble verifies the beginning of a part, or of a manifest: magic, CRC, version
// and kind.
func CheckPreamble(b []byte, magic [8]byte, version, kind uint16) *FormatFault {
	switch {
	case !bytes.Equal(b[:8], magic[:]):
		return &FormatFault{Reason: "wrong magic"}
	case order.Uint32(b[8:]) != checksum.Of(b[12:]):
		return &FormatFault{Reason: "wrong checksum"}
	case order.Uint16(b[12:]) > version:
		return &FormatFault{Newer: true}
	case order.Uint16(b[14:]) != kind:
		return &FormatFault{Reason: "wrong kind"}
	}
	return nil
}

func (f *footer) encode() []byte {
	b := make([]byte, footerBytes)
	copy(b, footerMagic[:])
	order.PutUint16(b[12:], version)
	order.PutUint16(b[14:], kindFooter)
	for i, s := range [...]section{f.index, f.filter, f.properties} {
		at := b[16+i*sectionBytes:]
		order.PutUint64(at, s.offset)
		order.PutUint64(at[8:], s.length)
		order.PutUint32(at[16:], s.crc)
	}
	order.PutUint64(b[16+3*sectionBytes:], f.fileBytes)
	order.PutUint32(b[8:], checksum.Of(b[12:]))
	return b
}

// decodeFooter decodes the footer of a file of the given size and checks that the
// sections fill the space between the blocks and the footer.
func decodeFooter(b []byte, fileBytes uint64) (footer, *FormatFault) {
	var f footer
	if fault := CheckPreamble(b, footerMagic, version, kindFooter); fault != nil {
		return f, fault
	}
	f.fileBytes = order.Uint64(b[16+3*sectionBytes:])
	if f.fileBytes != fileBytes {
		return f, &FormatFault{Reason: "file size differs from the footer"}
	}
	end := fileBytes - footerBytes
	for i, s := range [...]*section{&f.properties, &f.filter, &f.index} {
		at := b[16+(2-i)*sectionBytes:]
		s.offset, s.length, s.crc = order.Uint64(at), order.Uint64(at[8:]), order.Uint32(at[16:])
		if s.length > end || s.offset != end-s.length {
			return f, &FormatFault{Reason: "a section is out of place"}
		}
		end = s.offset
	}
	if end < headerBytes {
		return f, &FormatFault{Reason: "a section is out of place"}
	}
	return f, nil
}

// properties summarizes the entries of a table.
type properties struct {
	entries, tombstones         uint64
	keyBytes, valueBytes        uint64
	firstSequence, lastSequence uint64
	minKey, maxKey              []byte
}

func (p *properties) encode() []byte {
	b := make([]byte, propertiesHeaderBytes, propertiesHeaderBytes+len(p.minKey)+len(p.maxKey))
	for i, v := range [...]uint64{p.entries, p.tombstones, p.keyBytes, p.valueBytes, p.firstSequence, p.lastSequence} {
		order.PutUint64(b[8*i:], v)
	}
	order.PutUint32(b[48:], uint32(len(p.minKey)))
	order.PutUint32(b[52:], uint32(len(p.maxKey)))
	b = append(b, p.minKey...)
	return append(b, p.maxKey...)
}

func decodeProperties(b []byte) (properties, *FormatFault) {
	var p properties
	if len(b) < propertiesHeaderBytes {
		return p, &FormatFault{Reason: "truncated properties"}
	}
	for i, v := range [...]*uint64{&p.entries, &p.tombstones, &p.keyBytes, &p.valueBytes, &p.firstSequence, &p.lastSequence} {
		*v = order.Uint64(b[8*i:])
	}
	minBytes, maxBytes := uint64(order.Uint32(b[48:])), uint64(order.Uint32(b[52:]))
	keys := b[propertiesHeaderBytes:]
	if minBytes > kv.MaxKeyBytes || maxBytes > kv.MaxKeyBytes || minBytes+maxBytes != uint64(len(keys)) {
		return p, &FormatFault{Reason: "properties with keys of wrong length"}
	}
	p.minKey, p.maxKey = bytes.Clone(keys[:minBytes]), bytes.Clone(keys[minBytes:])
	if p.entries == 0 || p.tombstones > p.entries || p.firstSequence > p.lastSequence || bytes.Compare(p.minKey, p.maxKey) > 0 {
		return p, &FormatFault{Reason: "inconsistent properties"}
	}
	return p, nil
}
