// Package queue stores documents in a directory of append-only segment files that
// rsync can copy while they are written. Each version of a document is written once,
// sequentially, has a permanent address, and is read by that address in constant time.
//
//	w, err := queue.OpenWriter(dir, nil)
//	address, err := w.Append([]byte("id"), document)
//	err = w.Flush() // from here on it is durable and readers see it
//	err = w.Close()
//
//	r, err := queue.OpenReader(dir, nil) // the same directory, or a copy
//	err = r.Tail(ctx, queue.Position{}, func(e queue.Entry) error { ... })
//	document, err := r.DocumentFor(nil, id, address)
//
// # Caveats
//
//   - A queue finds documents by address. An index from ids to addresses, built by a Tail,
//     is the caller's: package docservice has one.
//   - A directory has one Writer, enforced by a file lock that the kernel releases when the
//     process ends, and any number of Readers. Both are safe for concurrent use. A fetch takes
//     no lock.
//   - The slices of an Entry are valid until the function that it was passed to returns.
//   - An entry is neither durable nor visible before Flush. The first write or sync that fails
//     is final for a Writer.
//   - A document that was overwritten, deleted or has expired keeps its bytes until
//     package maintain rewrites its segment.
//   - A queue that is restored from a backup and written again has another history: readers
//     that have read more get ErrForked.
//   - Files may be replaced while readers use them, as rsync does: bytes are verified after they
//     were read. The file system needs fsync and atomic renames.
//
// # Files
//
// Segments are numbered from 1 without gaps, except where rewrites replace some of them. A
// sealed segment, 0000000001.seg, never changes. The last one may be open, 0000000002.open,
// and is only appended to. 0000000000.head states how far the queue reaches at its source.
// LOCK need not be copied, nor UNCOMMITTED, which exists during a transaction (Writer.Begin). A
// segment has blocks of entries. A commit mark follows blocks that were durable at the source when
// it was written, and a footer ends a complete segment. Package segment draws the files.
//
// docs/format describes every byte, docs/durability.md the commit point of each operation.
//
// An address is the segment's number, the offset of the block, and the index of the entry in
// the block's table. A document's checksum covers its address, id, length and bytes, so a
// fetch returns the right document or an error. A fetch with the [Place] of an entry reads
// only the document.
//
// # Recovery
//
// Readers deliver entries before a valid mark or footer only, so no copy is ever ahead of what
// the source has on disk. OpenWriter seals a segment that was left open after its last whole
// block and never appends to it, because copies of the cut bytes may exist. It refuses a
// directory that has less than the head states (ErrIncomplete): an address must not name two
// documents. Package maintain writes rewrites, 0000000003-0000000005.0001.seg for
// the first rewrite of segments 3 to 5, in which kept entries keep their addresses; readers
// use the highest generation.
//
// One rule interprets wrong or missing bytes of a file that is being copied: files are filled
// in order, so before a valid mark or footer they are damage, and after the last of them they
// have not arrived yet. Damage ends Tail with a *CorruptionError; after the file has been
// copied again the next Tail continues. A sealed segment without a footer and without changes
// for half a minute, while later segments exist, counts as damaged.
//
// A Position proves the content before it by the digest of the previous segment and the
// checksum of the previous block. If whole files do not match it, they belong to another
// history of the queue: the error is ErrForked.
//
// # Limits
//
//	id                    1 to 1,024 bytes
//	document              0 to 16 MiB
//	cursor                4 KiB
//	block                 1 MiB of ids and documents, or a single entry; 65,535 entries
//	segment               4 GiB; 64 MiB by default
//	segments              4,294,967,295
//	pending documents     8 MiB, of a WriterGroup together; then Append waits
//	expiry                whole seconds from 1970 to 2106
//	files kept open       16,384 mapped ones for fetching, which take no descriptors,
//	                      and two for each Tail
//
// # Reading the source
//
//	Writer      writer.go assigns addresses, writer_compressors.go compresses documents,
//	            writer_pipeline.go writes blocks, writer_group.go shares resources
//	Reader      fetch*.go for documents, directory.go for the cached listing, sealed.go and
//	            rewrites.go for descriptions; stored.go for the form that leaves the queue
//	Tail        tail*.go for entries; position.go
//	head        head.go has the file, head_file.go maintains it
//
//	internal/segment     the bytes and names of the files, and the open files
//	internal/dictionary  the training of compression dictionaries
//	codec, stored        compression of documents; documents outside of a queue
//	maintain             check, compact, truncate, repair, usage
//	shard, shardset      a collection of several queues
//	digests              checksums of its live documents
//	publish, bucket      queues in object storage
//
// The package owns addresses, positions and the order of entries. It must not know the layout
// of a file, or which entries a rewrite keeps.
package queue
