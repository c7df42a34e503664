// Package wire encodes and decodes the messages of Get, BatchGet and the entries of Scan
// instead of the generated code: a document is read directly into the response, and an id is
// used in place in the request, without allocations or copies. The bytes are those of
// docservicepb; tests compare the two.
//
// Package docservice encodes requests and decodes responses with it, and package
// docservice/collection does the reverse. It must not know either.
package wire
