// Package digests keeps the checksums of the live documents of a collection, so that a new state
// of all documents can be compared with it without reading the documents.
//
//	t, err := digests.Open(ctx, dir, nil) // as the queues are now
//	row, digest, err := t.Find(id)
//	same := row >= 0 && digest == digests.Of(document, expires)
//	err = t.Close()
//
// A Table is a file of rows, sorted by the SHA-256 of the id, with the position of each shard up
// to which it was read. Open reads the entries behind these positions, with their documents, and
// replaces the file. If the file is missing or damaged, or a queue has another history, it reads
// the whole queues. So the file can be deleted at any time.
//
// Canaries have no row: they are no documents of a state.
//
// A change of a document is missed if the 64-bit checksums are equal: one of 1.8e19 changes. Ids
// are compared by 128 bits of their SHA-256.
//
// # File
//
// DIGESTS in the directory of the collection; docs/format/digests.md describes it. The checksum
// of the whole file is verified when it is opened.
//
// # Concurrency
//
// Open needs the lock of the writer, because it replaces the file and the table must not become
// older than the queues. A Table is safe for concurrent use until Close.
//
// # Limits
//
//	file       32 bytes for each live document
//	memory     64 MiB; more entries are sorted in temporary files. The file is mapped
//	documents  those that were not readable have a digest that no document has
package digests
