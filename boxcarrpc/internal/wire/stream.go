package wire

import (
	"encoding/binary"
	"time"
)

// Limits of streams.
const (
	// Window is the initial credit of each side of a stream, in bytes.
	Window = 256 << 10
	// MaxStatusBytes is the length of the longest message of a STATUS.
	MaxStatusBytes = 4 << 10
)

const (
	openSize    = 4 + 8 + 2
	messageSize = 4
	creditSize  = 4 + 4
	statusSize  = 4 + 4 + 2
)

// MessageRoom is the number of data bytes that fit into a MESSAGE.
const MessageRoom = MaxPayload - messageSize

// MessageCost returns the credit that a MESSAGE with n bytes of data takes: its whole
// length, so that empty messages are not free.
func MessageCost(n int) int { return HeaderSize + messageSize + n }

// An Open is the head of an OPEN.
type Open struct {
	Sequence uint32
	Budget   time.Duration // time until the deadline; 0 for none
}

// AppendOpen appends an OPEN. The method has at most MaxMethodBytes, the
// metadata MaxMetadataBytes.
func AppendOpen(dst []byte, number uint32, o Open, method string, metadata []byte) []byte {
	dst, start := begin(dst, TypeOpen, 0, number)
	dst = binary.LittleEndian.AppendUint32(dst, o.Sequence)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.Budget))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(method)))
	dst = append(dst, method...)
	dst = append(dst, metadata...)
	return seal(dst, start)
}

// Open parses an OPEN; method and metadata refer to the frame.
func (f Frame) Open() (o Open, method, metadata []byte, err error) {
	p := f.Payload
	if len(p) < openSize {
		return Open{}, nil, nil, f.sized(openSize)
	}
	o = Open{
		Sequence: binary.LittleEndian.Uint32(p),
		Budget:   time.Duration(binary.LittleEndian.Uint64(p[4:])),
	}
	length := int(binary.LittleEndian.Uint16(p[12:]))
	p = p[openSize:]
	switch {
	case length > MaxMethodBytes || length > len(p):
		return Open{}, nil, nil, malformed("method of %d bytes in an OPEN with room for %d", length, len(p))
	case o.Budget < 0:
		return Open{}, nil, nil, malformed("deadline of an OPEN is negative")
	}
	return o, p[:length:length], p[length:], f.checkMetadata(p[length:])
}

// AppendHeader appends a HEADER with at most MaxMetadataBytes.
func AppendHeader(dst []byte, number, sequence uint32, metadata []byte) []byte {
	dst, start := begin(dst, TypeHeader, 0, number)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	dst = append(dst, metadata...)
	return seal(dst, start)
}

// Header parses a HEADER; the metadata refers to the frame.
func (f Frame) Header() (sequence uint32, metadata []byte, err error) {
	if len(f.Payload) < 4 {
		return 0, nil, f.sized(4)
	}
	return binary.LittleEndian.Uint32(f.Payload), f.Payload[4:], f.checkMetadata(f.Payload[4:])
}

// AppendMessage appends a MESSAGE with at most MessageRoom bytes of data.
func AppendMessage(dst []byte, number, sequence uint32, flags uint8, data []byte) []byte {
	dst, start := begin(dst, TypeMessage, flags, number)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	dst = append(dst, data...)
	return seal(dst, start)
}

// Message parses a MESSAGE; data refers to the frame.
func (f Frame) Message() (sequence uint32, data []byte, err error) {
	if len(f.Payload) < messageSize {
		return 0, nil, f.sized(messageSize)
	}
	return binary.LittleEndian.Uint32(f.Payload), f.Payload[messageSize:], nil
}

// AppendCredit appends a CREDIT.
func AppendCredit(dst []byte, number, sequence, n uint32) []byte {
	dst, start := begin(dst, TypeCredit, 0, number)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	dst = binary.LittleEndian.AppendUint32(dst, n)
	return seal(dst, start)
}

// Credit parses a CREDIT of 1 to Window bytes.
func (f Frame) Credit() (sequence, n uint32, err error) {
	if len(f.Payload) != creditSize {
		return 0, 0, f.sized(creditSize)
	}
	n = binary.LittleEndian.Uint32(f.Payload[4:])
	if n == 0 || n > Window {
		return 0, 0, malformed("CREDIT of %d bytes, must be 1 to %d", n, Window)
	}
	return binary.LittleEndian.Uint32(f.Payload), n, nil
}

// AppendSequence appends an END or a RESET, which carry a sequence number only.
func AppendSequence(dst []byte, t Type, number, sequence uint32) []byte {
	dst, start := begin(dst, t, 0, number)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	return seal(dst, start)
}

// Sequence parses an END or a RESET.
func (f Frame) Sequence() (uint32, error) {
	if len(f.Payload) != 4 {
		return 0, f.sized(4)
	}
	return binary.LittleEndian.Uint32(f.Payload), nil
}

// A Status is the result of a stream. Its flags are those of the frame.
type Status struct {
	Sequence uint32
	Code     uint32
	Message  string // at most MaxStatusBytes
}

// AppendStatus appends a STATUS with at most MaxMetadataBytes of trailer.
func AppendStatus(dst []byte, number uint32, flags uint8, s Status, trailer []byte) []byte {
	dst, start := begin(dst, TypeStatus, flags, number)
	dst = binary.LittleEndian.AppendUint32(dst, s.Sequence)
	dst = binary.LittleEndian.AppendUint32(dst, s.Code)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Message)))
	dst = append(dst, s.Message...)
	dst = append(dst, trailer...)
	return seal(dst, start)
}

// Status parses a STATUS; the trailer refers to the frame.
func (f Frame) Status() (s Status, trailer []byte, err error) {
	p := f.Payload
	if len(p) < statusSize {
		return Status{}, nil, f.sized(statusSize)
	}
	length := int(binary.LittleEndian.Uint16(p[8:]))
	rest := p[statusSize:]
	if length > MaxStatusBytes || length > len(rest) {
		return Status{}, nil, malformed("message of %d bytes in a STATUS with room for %d", length, len(rest))
	}
	return Status{
		Sequence: binary.LittleEndian.Uint32(p),
		Code:     binary.LittleEndian.Uint32(p[4:]),
		Message:  string(rest[:length]),
	}, rest[length:], f.checkMetadata(rest[length:])
}
