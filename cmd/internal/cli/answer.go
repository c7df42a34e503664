package cli

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
	if bytes.IndexByte(document, '\n') < 0 && utf8.Valid(document) && json.Valid(document) {
		return append(append(append(dst, `"document":`...), document...), "}\n"...)
	}
	dst = append(dst, `"document_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, document)
	return append(dst, "\"}\n"...)
}

// AppendNotFound appends the line for an id without a document. reason is why the fetch
// failed, or "" if the document does not exist.
//
//	{"id":"19","found":false}
//	{"id":"20","found":false,"error":"..."}
func AppendNotFound(dst []byte, id, reason string) []byte {
	dst = append(AppendID(append(dst, '{'), id), `,"found":false`...)
	if reason != "" {
		dst = AppendString(append(dst, `,"error":`...), reason)
	}
	return append(dst, "}\n"...)
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
