package wire

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"docstore/docservice/docservicepb"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// Errors of requests and responses.
var (
	// ErrMalformed: the bytes are not a valid request or response of this service.
	ErrMalformed = errors.New("docservice: malformed message")
	// ErrBatchTooLarge: the batch has more than MaxBatchIDs ids.
	ErrBatchTooLarge = errors.New("docservice: more than 16384 ids in a batch")
)

// MaxBatchIDs is the maximum number of ids in a batch.
const MaxBatchIDs = 1 << 14

// ValidIDBytes reports whether an id may have n bytes.
func ValidIDBytes(n int) bool { return n > 0 && n <= stored.MaxIDBytes }

// Field numbers. GetRequest and BatchGetRequest have the same, and so have GetResponse and
// Answer.
const (
	fieldCollection protowire.Number = 1
	fieldID         protowire.Number = 2
	fieldAccept     protowire.Number = 3

	fieldStatus   protowire.Number = 1
	fieldDocument protowire.Number = 2
	fieldStored   protowire.Number = 3 // the document in its stored form

	fieldAnswers protowire.Number = 1
	fieldLeftOut protowire.Number = 2

	fieldEntryID protowire.Number = 4 // an Entry is an Answer with this field

	fieldEntries protowire.Number = 1
	fieldNext    protowire.Number = 2
)

// MaxAnswerOverheadBytes is the size of an Entry of a ScanResponse without document and id:
// two tags, two lengths of five bytes, and the status.
const MaxAnswerOverheadBytes = 1 + 5 + 2 + 1 + 5

// MaxLeftOutBytes is the size of the last field of a BatchGetResponse.
const MaxLeftOutBytes = 1 + 5

// field is one field of a message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte // for protowire.BytesType
	varint uint64 // for protowire.VarintType
}

// nextField splits the first field off b, which must not be empty.
func nextField(b []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number > protowire.MaxValidNumber {
		return field{}, nil, ErrMalformed
	}
	b = b[n:]
	f = field{number: number, kind: kind}
	switch kind {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return field{}, nil, ErrMalformed
	}
	return f, b[n:], nil
}

// Request holds the fields of a GetRequest or BatchGetRequest except the ids. The name is
// part of the message.
type Request struct {
	Collection []byte
	Accept     codec.Set // 0: plain bytes
}

// decodeRequest decodes a GetRequest or a BatchGetRequest: it calls id for each id, which
// is part of b. It returns ErrMalformed or the error of id.
func decodeRequest(b []byte, id func([]byte) error) (r Request, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return Request{}, err
		}
		switch {
		case f.number == fieldCollection && f.kind == protowire.BytesType:
			if r.Collection = f.bytes; !utf8.Valid(r.Collection) {
				return Request{}, ErrMalformed
			}
		case f.number == fieldID && f.kind == protowire.BytesType:
			if err := id(f.bytes); err != nil {
				return Request{}, err
			}
		case f.number == fieldAccept && f.kind == protowire.VarintType:
			r.Accept = codec.Set(f.varint)
		}
	}
	return r, nil
}

// DecodeGetRequest returns the fields of a GetRequest. They are part of b.
func DecodeGetRequest(b []byte) (r Request, id []byte, err error) {
	r, err = decodeRequest(b, func(found []byte) error {
		id = found
		return nil
	})
	return r, id, err
}

// DecodeBatchGetRequest appends the ids of a BatchGetRequest, which are part of
// b, to ids: at most MaxBatchIDs, else ErrBatchTooLarge.
func DecodeBatchGetRequest(ids [][]byte, b []byte) (Request, [][]byte, error) {
	r, err := decodeRequest(b, func(found []byte) error {
		if len(ids) == MaxBatchIDs {
			return ErrBatchTooLarge
		}
		ids = append(ids, found)
		return nil
	})
	return r, ids, err
}

// AppendCollection appends the first field of a GetRequest or BatchGetRequest.
func AppendCollection(dst []byte, collection string) []byte {
	dst = protowire.AppendTag(dst, fieldCollection, protowire.BytesType)
	return protowire.AppendString(dst, collection)
}

// AppendID appends the id of a GetRequest, or one id of a BatchGetRequest.
func AppendID(dst []byte, id string) []byte {
	dst = protowire.AppendTag(dst, fieldID, protowire.BytesType)
	return protowire.AppendString(dst, id)
}

// AppendAccept appends the last field of a GetRequest or BatchGetRequest.
func AppendAccept(dst []byte, accept codec.Set) []byte {
	if accept == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, fieldAccept, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(accept))
}

// documentField returns the field number of a document in plain or stored form.
func documentField(asStored bool) protowire.Number {
	if asStored {
		return fieldStored
	}
	return fieldDocument
}

// foundHeaderBytes is the space that BeginFound leaves before the document: status, tag of
// the document, and its length.
const foundHeaderBytes = 2 + 1 + lengthRoom

// BeginFound appends the first bytes of a GetResponse. The caller then appends the
// document.
func BeginFound(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	dst = append(dst, byte(docservicepb.Status_STATUS_FOUND))
	dst = protowire.AppendTag(dst, fieldDocument, protowire.BytesType)
	return append(dst, 0, 0)
}

// EndFound completes the GetResponse that begins at start: it sets the field number and
// length of the document.
func EndFound(dst []byte, start int, asStored bool) []byte {
	at := start + foundHeaderBytes - lengthRoom
	dst[at-1] = byte(protowire.EncodeTag(documentField(asStored), protowire.BytesType))
	return endLength(dst, at)
}

// lengthRoom is the space reserved for a length that is not known yet: it fits 128 B to 16
// KiB.
const lengthRoom = 2

// endLength stores the length of the bytes appended after the reserved space at an offset.
// It moves the bytes if the length does not take exactly lengthRoom bytes.
func endLength(dst []byte, at int) []byte {
	size := len(dst) - at - lengthRoom
	switch shift := protowire.SizeVarint(uint64(size)) - lengthRoom; {
	case shift < 0:
		copy(dst[at+lengthRoom+shift:], dst[at+lengthRoom:])
		dst = dst[:len(dst)+shift]
	case shift > 0:
		dst = append(dst, make([]byte, shift)...)
		copy(dst[at+lengthRoom+shift:], dst[at+lengthRoom:at+lengthRoom+size])
	}
	binary.PutUvarint(dst[at:], uint64(size))
	return dst
}

// AppendStatus appends a GetResponse or the body of an Answer without a document.
func AppendStatus(dst []byte, status docservicepb.Status) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(status))
}

// BeginAnswer appends the first bytes of an Answer of a BatchGetResponse, which contains a
// GetResponse. The caller then appends the document.
func BeginAnswer(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldAnswers, protowire.BytesType)
	return BeginFound(append(dst, 0, 0))
}

// EndAnswer completes the Answer that begins at start.
func EndAnswer(dst []byte, start int, asStored bool) []byte {
	at := start + 1 // behind the tag
	return endLength(EndFound(dst, at+lengthRoom, asStored), at)
}

// AppendAnswerStatus appends an Answer without a document.
func AppendAnswerStatus(dst []byte, status docservicepb.Status) []byte {
	dst = protowire.AppendTag(dst, fieldAnswers, protowire.BytesType)
	return AppendStatus(append(dst, 2), status)
}

// AppendLeftOut appends the number of ids at the end without an answer.
func AppendLeftOut(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, fieldLeftOut, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(n))
}

// Answer is a decoded GetResponse or Answer. Its fields are parts of the message.
type Answer struct {
	Status   docservicepb.Status
	Document []byte
	Stored   []byte // the stored form, instead of Document
}

// AppendEntry appends an Entry to a ScanResponse. If document is nil, it holds only the id
// and the status.
func AppendEntry(dst, id []byte, status docservicepb.Status, document []byte, asStored bool) []byte {
	dst = protowire.AppendTag(dst, fieldEntries, protowire.BytesType)
	size := 2 + 1 + protowire.SizeBytes(len(id))
	if document != nil {
		size += 1 + protowire.SizeBytes(len(document))
	}
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = AppendStatus(dst, status)
	if document != nil {
		dst = protowire.AppendTag(dst, documentField(asStored), protowire.BytesType)
		dst = protowire.AppendBytes(dst, document)
	}
	dst = protowire.AppendTag(dst, fieldEntryID, protowire.BytesType)
	return protowire.AppendBytes(dst, id)
}

// AppendNext appends the start of the next page to a ScanResponse.
func AppendNext(dst, after []byte) []byte {
	dst = protowire.AppendTag(dst, fieldNext, protowire.BytesType)
	return protowire.AppendBytes(dst, after)
}

// DecodeAnswer returns the fields of a GetResponse or an Answer.
func DecodeAnswer(b []byte) (a Answer, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return Answer{}, err
		}
		switch {
		case f.number == fieldStatus && f.kind == protowire.VarintType:
			a.Status = docservicepb.Status(int32(f.varint))
		case f.number == fieldDocument && f.kind == protowire.BytesType:
			a.Document = f.bytes
		case f.number == fieldStored && f.kind == protowire.BytesType:
			a.Stored = f.bytes
		}
	}
	return a, nil
}

// DecodeBatchGetResponse calls add for each answer of a BatchGetResponse, in order, and
// returns the number of ids left out. The documents are parts of b.
func DecodeBatchGetResponse(b []byte, add func(Answer) error) (leftOut uint32, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return 0, err
		}
		switch {
		case f.number == fieldAnswers && f.kind == protowire.BytesType:
			a, err := DecodeAnswer(f.bytes)
			if err != nil {
				return 0, err
			}
			if err := add(a); err != nil {
				return 0, err
			}
		case f.number == fieldLeftOut && f.kind == protowire.VarintType:
			leftOut = uint32(f.varint)
		}
	}
	return leftOut, nil
}
