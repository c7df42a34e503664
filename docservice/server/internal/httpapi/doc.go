// Package httpapi contains the parts of an HTTP interface for documents that need no
// storage: errors as JSON, the negotiation of a content coding and its compressors, entity
// tags, and the ids in the body of a request.
//
// An error response has a JSON body, and a code for programs:
//
//	{"error":{"code":"not_found","message":"not found"}}
//
// A list of ids is a JSON array, or one JSON value per line:
//
//	["4711",17,{"id_base64":"/w=="}]
//
// All functions are safe for concurrent use. A compressor has about CompressorBytes of
// memory for any length of its input. ParseIDs allocates less than three times the size of
// the body.
package httpapi
