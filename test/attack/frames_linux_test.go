package attack

import (
	"encoding/binary"
	"hash/crc32"
)

// Boxcar frames as docs/format/boxcar.md specifies them. The attackers do not use the
// product's code, which would not send invalid frames.
const (
	typeHello   = 1
	typeLease   = 2
	typeRequest = 6
	typeData    = 7
	typePing    = 11
	typeOpen    = 13

	noSlot = 1<<32 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func frame(kind byte, lane uint32, payload ...byte) []byte {
	b := make([]byte, 16, 16+len(payload))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[8:], lane)
	b[12] = kind
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// hello announces that the client accepts responses of 32 MiB.
func hello() []byte {
	p := append([]byte("BXCR"), make([]byte, 31)...)
	binary.LittleEndian.PutUint32(p[24:], 32<<20)
	return frame(typeHello, 0, p...)
}

func lease(lane uint32) []byte {
	return frame(typeLease, lane, binary.LittleEndian.AppendUint32(nil, noSlot)...)
}

// request announces total bytes and carries data.
func request(lane, sequence uint32, method string, total int, data []byte) []byte {
	p := binary.LittleEndian.AppendUint32(nil, sequence)
	p = binary.LittleEndian.AppendUint32(p, uint32(total))
	p = binary.LittleEndian.AppendUint64(p, 0)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(method)))
	return frame(typeRequest, lane, append(append(p, method...), data...)...)
}

func data(lane, sequence uint32, data []byte) []byte {
	return frame(typeData, lane, append(binary.LittleEndian.AppendUint32(nil, sequence), data...)...)
}

func ping() []byte { return frame(typePing, 0, make([]byte, 8)...) }
