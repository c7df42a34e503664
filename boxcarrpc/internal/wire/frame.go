package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Limits of the protocol.
const (
	HeaderSize     = 16
	MaxPayload     = 32 << 10
	MaxFrame       = HeaderSize + MaxPayload
	MaxMethodBytes = 1 << 10
	MaxNameBytes   = 255
	MaxReasonBytes = 255
	MaxTokenBytes  = 8 << 10
	MaxLanes       = 1 << 16 // exclusive limit of lane and stream numbers
	MaxSlots       = 1 << 24 // exclusive limit of slot numbers
	NoSlot         = 1<<31 - 1
)

// Type is the type of a frame. The zero Type is never sent.
type Type uint8

// The types of frames.
const (
	TypeHello    Type = 1
	TypeLease    Type = 2
	TypeGrant    Type = 3
	TypeDeny     Type = 4
	TypeRelease  Type = 5
	TypeRequest  Type = 6
	TypeData     Type = 7
	TypeCancel   Type = 8
	TypeResponse Type = 9
	TypeGoAway   Type = 10
	TypePing     Type = 11
	TypePong     Type = 12
	TypeOpen     Type = 13
	TypeHeader   Type = 14
	TypeMessage  Type = 15
	TypeCredit   Type = 16
	TypeEnd      Type = 17
	TypeReset    Type = 18
	TypeStatus   Type = 19
	TypeDrain    Type = 20
	TypeUndrain  Type = 21
)

var typeNames = [...]string{
	"none", "HELLO", "LEASE", "GRANT", "DENY", "RELEASE", "REQUEST", "DATA",
	"CANCEL", "RESPONSE", "GOAWAY", "PING", "PONG",
	"OPEN", "HEADER", "MESSAGE", "CREDIT", "END", "RESET", "STATUS", "DRAIN", "UNDRAIN",
}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Flags of RESPONSE. STATUS has FlagProcessed only.
const (
	// FlagProcessed: a handler has started the request.
	FlagProcessed = 1 << 0
	// FlagSlotLost: the lane and its slot end with this response.
	FlagSlotLost = 1 << 1
)

// FlagMetadata is a flag of REQUEST and RESPONSE: metadata comes before the data.
const FlagMetadata = 1 << 2

// FlagMore is a flag of MESSAGE: the next MESSAGE continues the message.
const FlagMore = 1 << 0

// flagsOf has the valid flags of each type of frame.
func flagsOf(t Type) uint8 {
	switch t {
	case TypeRequest:
		return FlagMetadata
	case TypeResponse:
		return FlagProcessed | FlagSlotLost | FlagMetadata
	case TypeStatus:
		return FlagProcessed
	case TypeMessage:
		return FlagMore
	}
	return 0
}

// ErrMalformed is matched by every error of this package: the bytes violate the protocol,
// and the connection must be closed.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Frame is a parsed frame. Payload refers to the parsed bytes.
type Frame struct {
	Type    Type
	Flags   uint8
	Lane    uint32
	Payload []byte
}

// ParseFrame parses the first frame of b and returns its length. A length of 0 without an
// error means that b does not hold a whole frame yet. It never requires more bytes than the
// largest frame has.
func ParseFrame(b []byte) (f Frame, n int, err error) {
	if f, n, err = PeekFrame(b); n == 0 {
		return f, n, err
	}
	if got, want := crc32.Checksum(b[4:n], castagnoli), binary.LittleEndian.Uint32(b); got != want {
		return Frame{}, 0, malformed("checksum of %v is %08x, the frame has %08x", f.Type, got, want)
	}
	return f, n, nil
}

// PeekFrame is ParseFrame without verifying the checksum. The result must only be used for
// hints, because the frame may be corrupt.
func PeekFrame(b []byte) (f Frame, n int, err error) {
	if len(b) < HeaderSize {
		return Frame{}, 0, nil
	}
	length := binary.LittleEndian.Uint32(b[4:])
	f = Frame{Lane: binary.LittleEndian.Uint32(b[8:]), Type: Type(b[12]), Flags: b[13]}
	// Errors in the header are reported before the payload has arrived.
	switch {
	case length > MaxPayload:
		return Frame{}, 0, malformed("payload of %d bytes, at most %d are allowed", length, MaxPayload)
	case f.Type == 0 || f.Type > TypeUndrain:
		return Frame{}, 0, malformed("unknown %v", f.Type)
	case f.Flags&^flagsOf(f.Type) != 0:
		return Frame{}, 0, malformed("unknown flags %#x of %v", f.Flags, f.Type)
	case b[14]|b[15] != 0:
		return Frame{}, 0, malformed("reserved bytes of %v are not zero", f.Type)
	case f.Lane >= MaxLanes:
		return Frame{}, 0, malformed("lane %d, must be below %d", f.Lane, MaxLanes)
	case f.Lane != 0 && !f.Type.hasLane():
		return Frame{}, 0, malformed("%v on lane %d, must be 0", f.Type, f.Lane)
	}
	n = HeaderSize + int(length)
	if len(b) < n {
		return Frame{}, 0, nil
	}
	f.Payload = b[HeaderSize:n:n]
	return f, n, nil
}

// hasLane reports whether frames of this type belong to a lane or a stream; others belong
// to the connection.
func (t Type) hasLane() bool {
	switch t {
	case TypeHello, TypeGoAway, TypePing, TypePong, TypeDrain, TypeUndrain:
		return false
	}
	return true
}

// begin appends a header whose length and checksum seal fills in.
func begin(dst []byte, t Type, flags uint8, lane uint32) (frame []byte, start int) {
	start = len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, lane)
	return append(dst, byte(t), flags, 0, 0), start
}

// seal ends the frame that begins at start.
func seal(dst []byte, start int) []byte {
	frame := dst[start:]
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)-HeaderSize))
	binary.LittleEndian.PutUint32(frame, crc32.Checksum(frame[4:], castagnoli))
	return dst
}
