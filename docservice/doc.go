// Package docservice fetches documents by id from the servers of a collection, over Boxcar.
//
//	pool, err := boxcarrpc.NewPool(servers, &boxcarrpc.PoolOptions{
//		Methods: docservice.IdempotentMethods(),
//	})
//	client := docservice.NewClient(pool, "jobs")
//	document, err := client.Get(ctx, nil, "4711")
//
// It owns the client, and what clients and servers agree on: methods, messages (docservicepb),
// limits and errors. Other programs link it, so it imports only the standard library,
// boxcarrpc, the runtime of protobuf, and the decoders of documents; see deps_test.go. It must
// not know the index, the queue's files, gRPC or where the servers come from. Package
// docservice/collection is the server, docservice/docservicegrpc the same service for gRPC.
//
// # Answers
//
// An id has one of these answers:
//
//   - the document, byte for byte as it was appended. The client has verified its checksum,
//     which covers the id.
//   - ErrNotFound: never written, deleted, or expired. A server answers so only while it has
//     read the queue to its end.
//   - ErrUnavailable: no server that was asked can read the document now; it may exist. The
//     client has asked others.
//   - ErrMoved: the shard of the id is served elsewhere; package docservice/sharded follows.
//   - an error.
//
// A batch has an answer for each id in the order of the request. If the response would
// exceed [MaxReplyBytes], ids at the end are left out and counted, but never all of them;
// the client requests them again. A list is split into pages, each as of another moment:
// [Client.Scan].
//
// # On the wire
//
// A document is transferred in its stored form, with its checksum, its codec and the hash
// of its dictionary: the daemon decompresses nothing, and the client verifies and decodes
// it. The client fetches a dictionary the first time a document names it. A client made by
// [Client.Plain] requests plain bytes instead, and so does a client that lacks the codec or
// cannot get the dictionary of a document. See decode.go and docs/format/stored.md.
//
// # Concurrency
//
// All methods are safe for concurrent use, except those of a [Batch].
//
// # Limits
//
//   - an id has 1 byte to 1 KiB, a document at most 16 MiB (package queue)
//   - a batch has at most 16,384 ids ([MaxBatchIDs]), a response at most [MaxReplyBytes]
//   - a page of a scan has at most 4,096 ids ([MaxScanIDs]), 1,000 by default, and at most
//     [MaxReplyBytes]
//   - a client caches 16 MiB of dictionaries
//
// # Reading the source
//
//	calls       client.go, client_batch.go, client_scan.go
//	documents   decode.go; package queue/stored
//	agreed      methods.go, errors.go, internal/wire
package docservice
