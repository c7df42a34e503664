// Package records reads documents from files of records.
//
//	format   a record                          the document
//	ndjson   a line                            the line without its "\n", unchanged
//	json     an element of one JSON array, or  the element or object, unchanged
//	         one of the objects in the stream
//	csv tsv  a row below a row of names        an object of strings: {"id":"17","title":"..."}
//
// The text is UTF-8, or is decoded from another Encoding.
//
// A document is a JSON object with an id among its top-level fields. Control fields change
// the meaning of a record:
//
//	{"id": "17", "title": "..."}                            a document
//	{"id": 17, "title": "..."}                              a document of the same id
//	{"id": "17", "_expires": "2026-12-31T00:00:00Z", ...}   a document until then
//	{"id": "17", "_delete": true}                           deletes the document
//	{"id": "17", "_document": {"title": "..."}}             the value is the document, unchanged
//	{"id": "17", "_document_base64": "PGh0bWw+..."}         a document of these bytes
//	{"_id_base64": "/w==", ...}                             an id that is not text
//
// An id is a string, or an integer without fraction and exponent. In a table control
// fields are columns, and an empty cell has no effect.
//
// Open detects the compression of a stream (gzip, zstd, bzip2, xz) and its format, and reads its
// records in bounded memory. Parser extracts the entry for the queue from a record and
// validates its JSON in one pass; it allocates only for escaped ids and base64. Records
// read by one goroutine may be parsed by several, each with its own Parser.
package records
