package docservice

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"docstore/docservice/docservicepb"
	"docstore/queue/codec"
)

// The messages of Get and BatchGet are encoded and decoded here instead of by the generated
// code: a document is read directly into the response, and an id is used in place in the
// request, without allocations or copies. The bytes are those of docservicepb; tests
// compare the two.

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

// maxAnswerOverheadBytes is the size of an Entry of a ScanResponse without document and id:
// two tags, two lengths of five bytes, and the status.
const maxAnswerOverheadBytes = 1 + 5 + 2 + 1 + 5

// maxLeftOutBytes is the size of the last field of a BatchGetResponse.
const maxLeftOutBytes = 1 + 5

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

// request holds the fields of a GetRequest or BatchGetRequest except the ids. The name is
// part of the message.
type request struct {
	collection []byte
	accept     codec.Set
}

// decodeRequest decodes a GetRequest or a BatchGetRequest: it calls id for each id, which
// is part of b. It returns ErrMalformed or the error of id.
func decodeRequest(b []byte, id func([]byte) error) (r request, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return request{}, err
		}
		switch {
		case f.number == fieldCollection && f.kind == protowire.BytesType:
			if r.collection = f.bytes; !utf8.Valid(r.collection) {
				return request{}, ErrMalformed
			}
		case f.number == fieldID && f.kind == protowire.BytesType:
			if err := id(f.bytes); err != nil {
				return request{}, err
			}
		case f.number == fieldAccept && f.kind == protowire.VarintType:
			r.accept = codec.Set(f.varint)
		}
	}
	return r, nil
}

// decodeGetRequest returns the fields of a GetRequest. They are part of b.
func decodeGetRequest(b []byte) (r request, id []byte, err error) {
	r, err = decodeRequest(b, func(found []byte) error {
		id = found
		return nil
	})
	return r, id, err
}

// decodeBatchGetRequest appends the ids of a BatchGetRequest, which are part of
// b, to ids: at most MaxBatchIDs, else ErrBatchTooLarge.
func decodeBatchGetRequest(ids [][]byte, b []byte) (request, [][]byte, error) {
	r, err := decodeRequest(b, func(found []byte) error {
		if len(ids) == MaxBatchIDs {
			return ErrBatchTooLarge
		}
		ids = append(ids, found)
		return nil
	})
	return r, ids, err
}

// appendCollection appends the first field of a GetRequest or BatchGetRequest.
func appendCollection(dst []byte, collection string) []byte {
	dst = protowire.AppendTag(dst, fieldCollection, protowire.BytesType)
	return protowire.AppendString(dst, collection)
}

// appendID appends the id of a GetRequest, or one id of a BatchGetRequest.
func appendID(dst []byte, id string) []byte {
	dst = protowire.AppendTag(dst, fieldID, protowire.BytesType)
	return protowire.AppendString(dst, id)
}

// appendAccept appends the last field of a GetRequest or BatchGetRequest.
func appendAccept(dst []byte, accept codec.Set) []byte {
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

// foundHeaderBytes is the space that beginFound leaves before the document: status, tag of
// the document, and its length.
const foundHeaderBytes = 2 + 1 + lengthRoom

// beginFound appends the first bytes of a GetResponse. The caller then appends the
// document.
func beginFound(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	dst = append(dst, byte(docservicepb.Status_STATUS_FOUND))
	dst = protowire.AppendTag(dst, fieldDocument, protowire.BytesType)
	return append(dst, 0, 0)
}

// endFound completes the GetResponse that begins at start: it sets the field number and
// length of the document.
func endFound(dst []byte, start int, asStored bool) []byte {
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

// appendStatus appends a GetResponse or the body of an Answer without a document.
func appendStatus(dst []byte, status docservicepb.Status) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(status))
}

// beginAnswer appends the first bytes of an Answer of a BatchGetResponse, which contains a
// GetResponse. The caller then appends the document.
func beginAnswer(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldAnswers, protowire.BytesType)
	return beginFound(append(dst, 0, 0))
}

// endAnswer completes the Answer that begins at start.
func endAnswer(dst []byte, start int, asStored bool) []byte {
	at := start + 1 // behind the tag
	return endLength(endFound(dst, at+lengthRoom, asStored), at)
}

// appendAnswerStatus appends an Answer without a document.
func appendAnswerStatus(dst []byte, status docservicepb.Status) []byte {
	dst = protowire.AppendTag(dst, fieldAnswers, protowire.BytesType)
	return appendStatus(append(dst, 2), status)
}

// appendLeftOut appends the number of ids at the end without an answer.
func appendLeftOut(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, fieldLeftOut, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(n))
}

// answer is a decoded GetResponse or Answer. Its fields are parts of the message.
type answer struct {
	status   docservicepb.Status
	document []byte
	stored   []byte // the stored form, instead of document
}

// appendEntry appends an Entry to a ScanResponse. Without document and error it holds only
// the id.
func appendEntry(dst, id []byte, answer Answer) []byte {
	dst = protowire.AppendTag(dst, fieldEntries, protowire.BytesType)
	size := 2 + 1 + protowire.SizeBytes(len(id))
	if answer.Document != nil {
		size += 1 + protowire.SizeBytes(len(answer.Document))
	}
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendStatus(dst, answer.status())
	if answer.Document != nil {
		dst = protowire.AppendTag(dst, documentField(answer.asStored), protowire.BytesType)
		dst = protowire.AppendBytes(dst, answer.Document)
	}
	dst = protowire.AppendTag(dst, fieldEntryID, protowire.BytesType)
	return protowire.AppendBytes(dst, id)
}

// appendNext appends the start of the next page to a ScanResponse.
func appendNext(dst, after []byte) []byte {
	dst = protowire.AppendTag(dst, fieldNext, protowire.BytesType)
	return protowire.AppendBytes(dst, after)
}

// decodeAnswer returns the fields of a GetResponse or an Answer.
func decodeAnswer(b []byte) (a answer, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return answer{}, err
		}
		switch {
		case f.number == fieldStatus && f.kind == protowire.VarintType:
			a.status = docservicepb.Status(int32(f.varint))
		case f.number == fieldDocument && f.kind == protowire.BytesType:
			a.document = f.bytes
		case f.number == fieldStored && f.kind == protowire.BytesType:
			a.stored = f.bytes
		}
	}
	return a, nil
}

// decodeBatchGetResponse calls add for each answer of a BatchGetResponse, in order, and
// returns the number of ids left out. The documents are parts of b.
func decodeBatchGetResponse(b []byte, add func(answer) error) (leftOut uint32, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return 0, err
		}
		switch {
		case f.number == fieldAnswers && f.kind == protowire.BytesType:
			a, err := decodeAnswer(f.bytes)
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
