package docservice

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"docstore/docservice/docservicepb"
)

// The messages of Get and BatchGet are encoded and decoded here and not by the
// generated code, because a document is then read straight into the response
// and an id is used where it lies in the request: nothing is allocated or
// copied twice. The bytes are those of docservicepb; the tests hold the two
// against each other.

// Field numbers; a GetRequest and a BatchGetRequest have the same, and so have
// a GetResponse and an Answer.
const (
	fieldCollection protowire.Number = 1
	fieldID         protowire.Number = 2

	fieldStatus   protowire.Number = 1
	fieldDocument protowire.Number = 2

	fieldAnswers protowire.Number = 1
	fieldLeftOut protowire.Number = 2
)

// maxAnswerOverheadBytes is what an answer takes in a BatchGetResponse besides
// its document: two tags and two lengths of five bytes, and the status.
const maxAnswerOverheadBytes = 1 + 5 + 2 + 1 + 5

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

// decodeGetRequest returns the fields of a GetRequest. They are part of b.
func decodeGetRequest(b []byte) (collection, id []byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return nil, nil, err
		}
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case fieldCollection:
			if collection = f.bytes; !utf8.Valid(collection) {
				return nil, nil, ErrMalformed
			}
		case fieldID:
			id = f.bytes
		}
	}
	return collection, id, nil
}

// decodeBatchGetRequest appends the ids of a BatchGetRequest, which are part of
// b, to ids: at most MaxBatchIDs, else ErrBatchTooLarge.
func decodeBatchGetRequest(ids [][]byte, b []byte) (collection []byte, _ [][]byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return nil, nil, err
		}
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case fieldCollection:
			if collection = f.bytes; !utf8.Valid(collection) {
				return nil, nil, ErrMalformed
			}
		case fieldID:
			if len(ids) == MaxBatchIDs {
				return nil, nil, ErrBatchTooLarge
			}
			ids = append(ids, f.bytes)
		}
	}
	return collection, ids, nil
}

// appendCollection appends the first field of a GetRequest or BatchGetRequest.
func appendCollection(dst []byte, collection string) []byte {
	dst = protowire.AppendTag(dst, fieldCollection, protowire.BytesType)
	return protowire.AppendString(dst, collection)
}

// appendID appends the id of a GetRequest, or one more of a BatchGetRequest.
func appendID(dst []byte, id string) []byte {
	dst = protowire.AppendTag(dst, fieldID, protowire.BytesType)
	return protowire.AppendString(dst, id)
}

// foundHeaderBytes is the room that beginFound leaves before the document:
// status, tag of the document, and a length of two bytes.
const foundHeaderBytes = 2 + 1 + 2

// beginFound appends the beginning of a GetResponse whose document is about to
// be appended. The length goes before the document but is known only after it:
// there is room for one of two bytes, which fits documents of 128 B to 16 KiB.
func beginFound(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	dst = append(dst, byte(docservicepb.Status_STATUS_FOUND))
	dst = protowire.AppendTag(dst, fieldDocument, protowire.BytesType)
	return append(dst, 0, 0)
}

// endFound completes the GetResponse that begins at start: it fills in the
// length of the document, which it moves if two bytes are not what that takes.
func endFound(dst []byte, start int) []byte {
	at := start + foundHeaderBytes - 2
	size := len(dst) - start - foundHeaderBytes
	switch shift := protowire.SizeVarint(uint64(size)) - 2; {
	case shift < 0:
		copy(dst[at+1:], dst[at+2:])
		dst = dst[:len(dst)-1]
	case shift > 0:
		dst = append(dst, make([]byte, shift)...)
		copy(dst[at+2+shift:], dst[at+2:at+2+size])
	}
	binary.PutUvarint(dst[at:], uint64(size))
	return dst
}

// appendStatus appends a GetResponse or the body of an Answer without document.
func appendStatus(dst []byte, status docservicepb.Status) []byte {
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(status))
}

// appendAnswer appends one Answer to a BatchGetResponse.
func appendAnswer(dst []byte, status docservicepb.Status, document []byte) []byte {
	size := 2
	if status == docservicepb.Status_STATUS_FOUND {
		size += 1 + protowire.SizeBytes(len(document))
	}
	dst = protowire.AppendTag(dst, fieldAnswers, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendStatus(dst, status)
	if status == docservicepb.Status_STATUS_FOUND {
		dst = protowire.AppendTag(dst, fieldDocument, protowire.BytesType)
		dst = protowire.AppendBytes(dst, document)
	}
	return dst
}

// appendLeftOut appends how many ids at the end have no answer.
func appendLeftOut(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, fieldLeftOut, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(n))
}

// decodeAnswer returns the fields of a GetResponse or an Answer. The document
// is part of b.
func decodeAnswer(b []byte) (status docservicepb.Status, document []byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return 0, nil, err
		}
		switch {
		case f.number == fieldStatus && f.kind == protowire.VarintType:
			status = docservicepb.Status(int32(f.varint))
		case f.number == fieldDocument && f.kind == protowire.BytesType:
			document = f.bytes
		}
	}
	return status, document, nil
}

// decodeBatchGetResponse calls answer for each answer of a BatchGetResponse, in
// their order, and returns how many ids were left out. The documents are parts
// of b.
func decodeBatchGetResponse(b []byte, answer func(docservicepb.Status, []byte) error) (leftOut uint32, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = nextField(b); err != nil {
			return 0, err
		}
		switch {
		case f.number == fieldAnswers && f.kind == protowire.BytesType:
			status, document, err := decodeAnswer(f.bytes)
			if err != nil {
				return 0, err
			}
			if err := answer(status, document); err != nil {
				return 0, err
			}
		case f.number == fieldLeftOut && f.kind == protowire.VarintType:
			leftOut = uint32(f.varint)
		}
	}
	return leftOut, nil
}
