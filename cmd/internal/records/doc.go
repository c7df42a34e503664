// Package records reads documents from files of records.
//
//	format   a record                          the document
//	ndjson   a line                            the line without the "\n" that ends it, unchanged
//	json     an element of one JSON array      the element, unchanged
//	csv tsv  a row under a row of names        an object of strings: {"id":"17","title":"..."}
//
// A document is a JSON object with an id among its top-level fields. Control
// fields may ask for something else than storing it:
//
//	{"id": "17", "title": "..."}                            a document
//	{"id": 17, "title": "..."}                              a document of the same id
//	{"id": "17", "_expires": "2026-12-31T00:00:00Z", ...}   a document until then
//	{"id": "17", "_delete": true}                           no document: the id goes
//	{"id": "17", "_document_base64": "PGh0bWw+..."}         a document that is these bytes
//	{"_id_base64": "/w==", ...}                             an id that is no text
//
// An id is a string or an integer written without a fraction or an exponent.
// In a table control fields are columns, where an empty cell asks for nothing.
//
// Open finds out how a stream is compressed (gzip, zstd) and what its format is,
// and reads its records in bounded memory. Parser takes from a record what the
// queue needs to know, and validates it as JSON on the way, in one pass; it
// allocates for nothing but ids that are escaped and what is in base64. It knows no
// stream: records that one goroutine has read several may parse, each with a Parser.
package records
