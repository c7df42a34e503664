package wire

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// Version is the protocol version of this package, and OldestVersion the oldest that it
// understands. Version 0 may still change.
const (
	Version       = 0
	OldestVersion = 0
)

// Magic starts the payload of HELLO. Its newline makes a server of a text protocol, such as
// HTTP, answer at once instead of waiting for the end of a line.
const Magic = "BXC\n"

// A Hello is the first frame in each direction.
type Hello struct {
	Version       uint16 // newest version of the sender
	OldestVersion uint16 // oldest version of the sender
	Features      uint64 // optional features as bits; unknown ones are ignored
	MaxLanes      uint32 // maximum number of lanes of the connection
	MaxRequest    uint32 // size of the largest request that the sender accepts; 0 from a client
	MaxResponse   uint32 // size of the largest response that the sender accepts; 0 from a server
	MaxStreams    uint32 // maximum number of concurrent streams of the connection; 0 from a client
	Name          string // shown on pages and in logs
	Token         string // authenticates the client; empty from a server
	Zone          string // the sender's zone, empty if unknown; with FeatureZone
}

// FeatureZone is the feature of a HELLO that has a zone after the token.
const FeatureZone = 1 << 1

const helloSize = 4 + 2 + 2 + 8 + 4 + 4 + 4 + 4 + 1 + 2

// AppendHello appends a HELLO, with FeatureZone if there is a zone. The name and the zone
// have at most MaxNameBytes, the token at most MaxTokenBytes.
func AppendHello(dst []byte, h Hello) []byte {
	if h.Zone != "" {
		h.Features |= FeatureZone
	}
	dst, start := begin(dst, TypeHello, 0, 0)
	dst = append(dst, Magic...)
	dst = binary.LittleEndian.AppendUint16(dst, h.Version)
	dst = binary.LittleEndian.AppendUint16(dst, h.OldestVersion)
	dst = binary.LittleEndian.AppendUint64(dst, h.Features)
	dst = binary.LittleEndian.AppendUint32(dst, h.MaxLanes)
	dst = binary.LittleEndian.AppendUint32(dst, h.MaxRequest)
	dst = binary.LittleEndian.AppendUint32(dst, h.MaxResponse)
	dst = binary.LittleEndian.AppendUint32(dst, h.MaxStreams)
	dst = append(dst, byte(len(h.Name)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Token)))
	dst = append(dst, h.Name...)
	dst = append(dst, h.Token...)
	if h.Features&FeatureZone != 0 {
		dst = append(dst, byte(len(h.Zone)))
		dst = append(dst, h.Zone...)
	}
	return seal(dst, start)
}

// Hello parses a HELLO. Bytes after it belong to a newer version and are ignored.
func (f Frame) Hello() (Hello, error) {
	p := f.Payload
	switch {
	case len(p) < helloSize:
		return Hello{}, f.sized(helloSize)
	case string(p[:4]) != Magic:
		return Hello{}, malformed("magic of HELLO is %q, must be %q", p[:4], Magic)
	}
	name, token := int(p[helloSize-3]), int(binary.LittleEndian.Uint16(p[helloSize-2:]))
	switch {
	case token > MaxTokenBytes:
		return Hello{}, malformed("token of %d bytes in a HELLO, at most %d are allowed", token, MaxTokenBytes)
	case len(p)-helloSize < name+token:
		return Hello{}, malformed("HELLO ends within its name or token")
	}
	h := Hello{
		Version:       binary.LittleEndian.Uint16(p[4:]),
		OldestVersion: binary.LittleEndian.Uint16(p[6:]),
		Features:      binary.LittleEndian.Uint64(p[8:]),
		MaxLanes:      binary.LittleEndian.Uint32(p[16:]),
		MaxRequest:    binary.LittleEndian.Uint32(p[20:]),
		MaxResponse:   binary.LittleEndian.Uint32(p[24:]),
		MaxStreams:    binary.LittleEndian.Uint32(p[28:]),
		Name:          string(p[helloSize:][:name]),
		Token:         string(p[helloSize+name:][:token]),
	}
	if rest := p[helloSize+name+token:]; h.Features&FeatureZone != 0 {
		if len(rest) == 0 || len(rest) <= int(rest[0]) {
			return Hello{}, malformed("HELLO ends within its zone")
		}
		h.Zone = string(rest[1:][:rest[0]])
	}
	return h, nil
}

func (f Frame) sized(want int) error {
	return malformed("payload of %v has %d bytes, needs %d", f.Type, len(f.Payload), want)
}

// AppendSlot appends a LEASE, GRANT or DENY, which carry a slot number or NoSlot.
func AppendSlot(dst []byte, t Type, lane, slot uint32) []byte {
	dst, start := begin(dst, t, 0, lane)
	dst = binary.LittleEndian.AppendUint32(dst, slot)
	return seal(dst, start)
}

// Slot parses a LEASE, GRANT or DENY.
func (f Frame) Slot() (uint32, error) {
	if len(f.Payload) != 4 {
		return 0, f.sized(4)
	}
	return readSlot(f.Payload, f.Type)
}

func readSlot(p []byte, t Type) (uint32, error) {
	slot := binary.LittleEndian.Uint32(p)
	if slot >= MaxSlots && slot != NoSlot {
		return 0, malformed("slot %d in %v", slot, t)
	}
	return slot, nil
}

// AppendRelease appends a RELEASE.
func AppendRelease(dst []byte, lane uint32) []byte {
	dst, start := begin(dst, TypeRelease, 0, lane)
	return seal(dst, start)
}

// AppendCancel appends a CANCEL of a lane's request.
func AppendCancel(dst []byte, lane, sequence uint32) []byte {
	dst, start := begin(dst, TypeCancel, 0, lane)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	return seal(dst, start)
}

// Cancel parses a CANCEL.
func (f Frame) Cancel() (sequence uint32, err error) {
	if len(f.Payload) != 4 {
		return 0, f.sized(4)
	}
	return binary.LittleEndian.Uint32(f.Payload), nil
}

// AppendPing appends a PING or a PONG.
func AppendPing(dst []byte, t Type, token uint64) []byte {
	dst, start := begin(dst, t, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, token)
	return seal(dst, start)
}

// Ping parses a PING or a PONG.
func (f Frame) Ping() (token uint64, err error) {
	if len(f.Payload) != 8 {
		return 0, f.sized(8)
	}
	return binary.LittleEndian.Uint64(f.Payload), nil
}

// AppendReason appends a GOAWAY, DRAIN or UNDRAIN with a reason to show, cut to
// MaxReasonBytes.
func AppendReason(dst []byte, t Type, reason string) []byte {
	dst, start := begin(dst, t, 0, 0)
	dst = append(dst, Cut(reason, MaxReasonBytes)...)
	return seal(dst, start)
}

// Cut returns the first bytes of a text, at most limit, without a partial UTF-8 sequence at
// the end.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for end := limit; end >= 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:limit] // not UTF-8
}

// Reason parses a GOAWAY, DRAIN or UNDRAIN.
func (f Frame) Reason() (reason string, err error) {
	if len(f.Payload) > MaxReasonBytes {
		return "", malformed("reason of %v has %d bytes", f.Type, len(f.Payload))
	}
	return string(f.Payload), nil
}

// A Request is the head of a REQUEST.
type Request struct {
	Sequence uint32
	Total    uint32        // size of the request, in this frame and the following DATA
	Budget   time.Duration // time until the deadline; 0 for none
}

const requestSize = 4 + 4 + 8 + 2

// RequestRoom returns the number of data bytes that fit into a REQUEST of this method
// without metadata.
func RequestRoom(method string) int { return MaxPayload - requestSize - len(method) }

// Data bytes that fit into the other frames that carry data, for a RESPONSE without
// metadata.
const (
	DataRoom     = MaxPayload - 4
	ResponseRoom = MaxPayload - responseSize
)

// AppendRequest appends a REQUEST with the first bytes of its data, at most RequestRoom.
// The method has at most MaxMethodBytes.
func AppendRequest(dst []byte, lane uint32, r Request, method string, data []byte) []byte {
	return AppendRequestWith(dst, lane, r, method, nil, data)
}

// AppendRequestWith appends a REQUEST with metadata, if there is any, and the first bytes
// of its data, at most RequestRoom less RequestMetadataBytes.
func AppendRequestWith(dst []byte, lane uint32, r Request, method string, metadata, data []byte) []byte {
	var flags uint8
	if len(metadata) > 0 {
		flags = FlagMetadata
	}
	dst, start := begin(dst, TypeRequest, flags, lane)
	dst = binary.LittleEndian.AppendUint32(dst, r.Sequence)
	dst = binary.LittleEndian.AppendUint32(dst, r.Total)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Budget))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(method)))
	dst = append(dst, method...)
	if len(metadata) > 0 {
		dst = appendRequestMetadata(dst, metadata)
	}
	dst = append(dst, data...)
	return seal(dst, start)
}

// Request parses a REQUEST; method and data refer to the frame. RequestMetadata returns its
// metadata.
func (f Frame) Request() (r Request, method, data []byte, err error) {
	p := f.Payload
	if len(p) < requestSize {
		return Request{}, nil, nil, f.sized(requestSize)
	}
	r = Request{
		Sequence: binary.LittleEndian.Uint32(p),
		Total:    binary.LittleEndian.Uint32(p[4:]),
		Budget:   time.Duration(binary.LittleEndian.Uint64(p[8:])),
	}
	length := int(binary.LittleEndian.Uint16(p[16:]))
	p = p[requestSize:]
	switch {
	case length > MaxMethodBytes || length > len(p):
		return Request{}, nil, nil, malformed("method of %d bytes in a REQUEST with room for %d", length, len(p))
	case r.Budget < 0:
		return Request{}, nil, nil, malformed("deadline of a REQUEST is negative")
	}
	if _, data, err = f.cutRequestMetadata(p[length:]); err != nil {
		return Request{}, nil, nil, err
	}
	if uint64(len(data)) > uint64(r.Total) {
		return Request{}, nil, nil, malformed("REQUEST of %d bytes carries %d", r.Total, len(data))
	}
	return r, p[:length:length], data, nil
}

// AppendData appends a DATA with at most DataRoom bytes.
func AppendData(dst []byte, lane, sequence uint32, data []byte) []byte {
	dst, start := begin(dst, TypeData, 0, lane)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	dst = append(dst, data...)
	return seal(dst, start)
}

// Data parses a DATA; data refers to the frame.
func (f Frame) Data() (sequence uint32, data []byte, err error) {
	if len(f.Payload) < 4 {
		return 0, nil, f.sized(4)
	}
	return binary.LittleEndian.Uint32(f.Payload), f.Payload[4:], nil
}

// A Response is the head of a RESPONSE. Its flags are those of the frame.
type Response struct {
	Sequence uint32
	Total    uint32 // size of the response or message, in this frame and the following DATA
	Lowest   uint32 // lowest free slot of the server, NoSlot if there is none
	Code     uint32 // at most MaxCode
	Load     uint32 // other requests in flight on the server, at most MaxLoad
}

// MaxCode is the largest code of a RESPONSE.
const MaxCode = 1<<16 - 1

// MaxLoad is the largest load that is sent; it stands for larger ones too.
const MaxLoad = 1<<16 - 1

const responseSize = 16

// AppendResponse appends a RESPONSE with the first bytes of its data, at most ResponseRoom.
func AppendResponse(dst []byte, lane uint32, flags uint8, r Response, data []byte) []byte {
	return AppendResponseWith(dst, lane, flags, r, nil, nil, data)
}

// AppendResponseWith appends a RESPONSE with metadata, if there is any, and the first bytes
// of its data, at most ResponseRoom less ResponseMetadataBytes.
func AppendResponseWith(dst []byte, lane uint32, flags uint8, r Response, header, trailer, data []byte) []byte {
	if len(header)+len(trailer) > 0 {
		flags |= FlagMetadata
	}
	dst, start := begin(dst, TypeResponse, flags, lane)
	dst = binary.LittleEndian.AppendUint32(dst, r.Sequence)
	dst = binary.LittleEndian.AppendUint32(dst, r.Total)
	dst = binary.LittleEndian.AppendUint32(dst, r.Lowest)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(r.Code))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(min(r.Load, MaxLoad)))
	if len(header)+len(trailer) > 0 {
		dst = appendResponseMetadata(dst, header, trailer)
	}
	dst = append(dst, data...)
	return seal(dst, start)
}

// Response parses a RESPONSE; data refers to the frame. ResponseMetadata returns its
// metadata.
func (f Frame) Response() (r Response, data []byte, err error) {
	p := f.Payload
	if len(p) < responseSize {
		return Response{}, nil, f.sized(responseSize)
	}
	r = Response{
		Sequence: binary.LittleEndian.Uint32(p),
		Total:    binary.LittleEndian.Uint32(p[4:]),
		Code:     uint32(binary.LittleEndian.Uint16(p[12:])),
		Load:     uint32(binary.LittleEndian.Uint16(p[14:])),
	}
	if r.Lowest, err = readSlot(p[8:], f.Type); err != nil {
		return Response{}, nil, err
	}
	if _, _, data, err = f.cutResponseMetadata(p[responseSize:]); err != nil {
		return Response{}, nil, err
	}
	if uint64(len(data)) > uint64(r.Total) {
		return Response{}, nil, malformed("RESPONSE of %d bytes carries %d", r.Total, len(data))
	}
	return r, data, nil
}
