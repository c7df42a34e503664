// Package ndjson reads documents from lines of JSON.
//
// A document is the bytes of its line without the "\n" that ends it, unchanged:
// a "\r" before it belongs to the document. Lines of nothing but blanks are
// passed over. A line is an object with an id among its top-level fields; two
// control fields may ask for something else than storing it:
//
//	{"id": "17", "title": "..."}                            a document
//	{"id": 17, "title": "..."}                              a document of the same id
//	{"id": "17", "_expires": "2026-12-31T00:00:00Z", ...}   a document until then
//	{"id": "17", "_delete": true}                           no document: the id goes
//
// An id is a string or an integer written without a fraction or an exponent.
//
// Reader splits a stream into lines in bounded memory, and knows where in the
// stream each ends. Parser takes from a line what the queue needs to know, and
// validates it as JSON on the way, in one pass and without allocating.
package ndjson
