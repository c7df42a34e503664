// Package peers copies the sealed files of a collection between the servers that serve it,
// so that an announced manifest is downloaded from the bucket about once and not by each
// server.
//
//	files := peers.NewServer(dirOf, nil)           // files.Handle is a boxcarrpc.StreamHandler
//	client, err := peers.NewClient(source, nil)    // source lists the servers
//	options.Source = client.Source("jobs")         // of a publish.Replica
//
// # Protocol
//
// A client opens a stream of Method with this metadata, and receives the bytes of the file
// in messages of at most 128 KiB:
//
//	collection   the name of the collection
//	file         the name of the file in the queue's directory
//	size         of the file, in bytes
//	footer       the digest in the file's footer, in hexadecimal digits
//
// The server sends a file of this name, size and footer, or answers CodeNotFound. It serves
// a file as soon as it is complete and verified, even while it fetches others. Above its
// limit of transfers it answers CodeResourceExhausted, marked as not processed: the client
// asks another server. A stream must have a deadline of at most MaxTransferTime.
//
// # Trust
//
// Clients authenticate as for documents. A client does not trust a server: publish.Replica
// verifies the SHA-256 of each file. A server that sent wrong bytes is not asked again for
// damagedPause; the client logs and counts it.
//
// # Concurrency
//
// All types are safe for concurrent use.
package peers
