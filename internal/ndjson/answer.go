// Package ndjson writes the answers to requests for documents as lines of JSON: those of
// boxcar mget and of lists over HTTP. It validates documents.
package ndjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// AppendFound appends the line for a document that was found:
//
//	{"id":"17","found":true,"document":{"title":"..."}}
//
// JSON is embedded unchanged. Documents that are not JSON or have several lines are
// encoded as "document_base64", and an id that is not UTF-8 as "id_base64".
func AppendFound(dst []byte, id string, document []byte) []byte {
	dst = append(AppendID(append(dst, '{'), id), `,"found":true,`...)
	if bytes.IndexByte(document, '\n') < 0 && utf8.Valid(document) && Valid(document) {
		return append(append(append(dst, `"document":`...), document...), "}\n"...)
	}
	dst = append(dst, `"document_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, document)
	return append(dst, "\"}\n"...)
}

// AppendNotFound appends the line for an id without a document:
//
//	{"id":"19","found":false}
func AppendNotFound(dst []byte, id string) []byte {
	return append(AppendID(append(dst, '{'), id), `,"found":false}`+"\n"...)
}

// AppendFailed appends the line for a document that could not be fetched. code is that of
// docservice.AnswerCode.
//
//	{"id":"20","found":false,"code":"unavailable","error":"..."}
func AppendFailed(dst []byte, id, code, reason string) []byte {
	dst = append(AppendID(append(dst, '{'), id), `,"found":false,"code":`...)
	dst = append(AppendString(dst, code), `,"error":`...)
	return append(AppendString(dst, reason), "}\n"...)
}

// AppendID appends the field of an id: "id", or "id_base64" if it is not UTF-8.
func AppendID(dst []byte, id string) []byte {
	if utf8.ValidString(id) {
		return AppendString(append(dst, `"id":`...), id)
	}
	dst = append(dst, `"id_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(id))
	return append(dst, '"')
}

// AppendString appends a JSON string.
func AppendString(dst []byte, s string) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return append(dst, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
