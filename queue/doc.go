// Package queue stores documents in a directory of append-only segment files that
// rsync can copy while they are written. Each version of a document is written once,
// sequentially, has a permanent address, and is read by that address in constant time.
//
// A Writer appends documents and deletes:
//
//	w, err := queue.OpenWriter(dir, nil)
//	address, err := w.Append([]byte("id"), document)
//	err = w.Flush() // from here on it is durable and readers see it
//	err = w.Close()
//
// A Reader, of the same directory or of a copy, tails the entries to build an index, and
// fetches documents by their addresses:
//
//	r, err := queue.OpenReader(dir, nil)
//	err = r.Tail(ctx, queue.Position{}, func(e queue.Entry) error { ... })
//	document, err := r.DocumentFor(nil, id, address)
//
// # Concurrency
//
// A directory has one Writer, enforced by a file lock that the kernel releases when the
// process ends, and any number of Readers. Writers and Readers are safe for concurrent
// use. Appends take a mutex; a fetch takes no lock. The slices of an Entry are valid until
// the function that it was passed to returns.
//
// A Writer compresses on all processors and writes in the background: appends continue
// while blocks are compressed and while Flush waits for the disk. At most 8 MiB of
// documents are pending; then Append waits.
//
// # Files
//
// A queue is a sequence of segments, numbered from 1 without gaps, except where rewrites
// replace some of them (see Space). A sealed segment, 0000000001.seg, never changes. The
// last segment may be open, 0000000002.open, and is only appended to. LOCK is the writer's
// lock and need not be copied. 0000000000.head states how far the queue reaches at its
// source (docs/format/head.md). A segment:
//
//	+--------+------------+-------+-------+------+-------+------+--------+
//	| header | dictionary | block | block | mark | block | mark | footer |
//	+--------+------------+-------+-------+------+-------+------+--------+
//
//	header       the queue's id, the segment's number, the codec, and the digest
//	             of the footer of the previous segment
//	dictionary   the codec's compression dictionary; may be empty
//	block        a table of entries, ids and a cursor, with a checksum of the
//	             whole and the checksum of the previous block; then the documents,
//	             each compressed by itself, with its own checksum
//	commit mark  everything before it was durable at the source
//	footer       totals; the segment is complete
//
// docs/format/segment.md describes every byte. An address is the segment's number, the
// offset of the block in the segment, and the index of the entry in the block's table. The
// offset of a block is known before the block is compressed, so Append returns the address
// at once.
//
// A document's checksum covers its address, id, length and bytes. A fetch therefore does
// not read the whole table of the block, and returns the right document or an error.
//
// Documents can leave the queue in their stored form (docs/format/stored.md): StoredFor
// returns it, ParseStored verifies it, and Decoders decode it and fetch each dictionary
// once. A process between the two ends needs no segments.
//
// Documents of sealed segments are read from memory mappings, others by system calls.
// Only verified copies are decoded, so a file that changes or is cut while it is mapped
// causes an error and no wrong document.
//
// # Durability
//
// Flush writes the block, syncs the file, and then writes the commit mark. Readers deliver
// entries before a valid mark or footer only, so no copy is ever ahead of what the source
// has on disk. Seal syncs, writes the footer, syncs, renames the file, and syncs the
// directory. The first write or sync that fails is final for a Writer. docs/durability.md
// lists the steps and the commit point of each operation.
//
// SetCursor attaches the position in the input to the next block. After a crash it is
// exactly as old as the entries.
//
// # Recovery
//
// OpenWriter seals a segment that was left open: it cuts the file after its last whole
// block, marked or not, and adds the footer. Blocks after the last mark count only if
// their documents are whole, too. OpenWriter never appends to such a file, because copies
// of the cut bytes may exist. A crash cannot cause damage before a mark; OpenWriter reports
// such damage and does not change the file.
//
// OpenWriter refuses a directory that has less than the head states (ErrIncomplete),
// because an address must not name two documents. Truncate removes entries from the end of
// the queue without reusing segment numbers: a rewrite (see Space) replaces the segments
// and records the truncated range.
//
// # Histories
//
// A Position carries a Proof of the content before it: the digest of the previous segment
// and the checksum of the previous block. A Tail that starts there compares both with the
// files. If the files are whole and do not match, they belong to another history of the
// queue, for example because the source was restored from a backup and written again: the
// error is ErrForked, at every attempt. A position in a truncated range is a
// *TruncatedError. While the file of the position is missing or too short, the Tail waits
// and does not report that it has caught up; a short file without changes for half a
// minute is ErrForked, too. A rewrite holds the digest, the end and the last checksum of
// each segment that it replaces, and the checksum of each original block that it keeps a
// part of. For a position after any other block in the middle of a segment only the
// previous segment is compared.
//
// # Incomplete copies
//
// A reader does not know how its files are written: by the Writer, by rsync into a new
// file, or by rsync --inplace. One rule interprets wrong or missing bytes: files are
// filled in order, so before a valid commit mark or footer they are damage, and after the
// last of them they have not arrived yet. Damage ends Tail with a *CorruptionError; after
// the file has been copied again the next Tail continues. Tail waits for bytes and
// segments that have not arrived. The rule cannot tell a damaged footer from one that has
// not arrived. So a sealed segment without a footer and without changes for half a
// minute, while later segments exist, counts as damaged.
//
// Tail polls every ReaderOptions.PollInterval. On Linux it also uses inotify, which makes
// new entries visible at once. Without inotify (network file systems, or no watches left,
// which is logged) entries are seen up to one interval later.
//
// If 0000000002.seg and 0000000002.open both exist, the .seg file is read first, and the
// .open file only if the first does not have the bytes.
//
// # Dictionaries
//
// s2 and zstd compress small documents far better with a dictionary of typical content.
// The Writer trains it in the background from a sample of the appended documents and uses
// it from the next segment on; a segment without dictionary is sealed early when one is
// ready. Training delays no append, with one exception: a writer that fills 4 MiB of a
// segment before the first dictionary is ready waits for it once, about 0.1 s. A new
// dictionary replaces the current one only if it stores 3 % less. Dictionaries are used
// only if segments are at least 16 times as large.
//
// # Space
//
// A document that was overwritten, deleted, or has expired is dead but keeps its bytes.
// Reader.Usage returns the exact number of dead bytes per segment, from the tables alone
// and in bounded memory.
//
// Compact rewrites runs of sealed segments without their dead entries, into files named
// 0000000003-0000000005.0001.seg: the first rewrite of the segments 3 to 5. Kept entries
// keep their addresses. Readers use the whole rewrite with the highest generation instead
// of the segments, which are removed only on request. The file name contains a range and
// a generation, and not the next segment number, so that the Writer and Compact share no
// counter. A fetch of an address that a rewrite has left out is a *GoneError. If it is
// unknown whether a damaged or incomplete rewrite has the entry, the document is
// unavailable: an older file may hold a document whose delete exists no more. With
// EraseDead, Compact rewrites every file that holds a document which has been dead for
// some time, and every dictionary that may have been trained from one.
//
// # Repair
//
// Repair writes rewrites with everything in a damaged queue that can be verified, at its
// old addresses. A damaged document keeps its entry, so that no older version reappears;
// a fetch of it is a *LostError. Where ids are lost the rewrite records the range of
// addresses, and a fetch of any of them is a *LostError, too.
//
// # Limits
//
//	id                    1 to 1,024 bytes
//	document              0 to 16 MiB
//	cursor                4 KiB
//	block                 1 MiB of ids and documents, or a single entry; 65,535 entries
//	segment               4 GiB; 64 MiB by default
//	segments              4,294,967,295
//	expiry                whole seconds from 1970 to 2106
//	files kept open       16,384 mapped ones for fetching, which take no descriptors,
//	                      and two for each Tail
//
// # Reading the source
//
//	bytes       format.go, header.go, block.go, footer.go; rewrite_relocations.go
//	            for the table of a rewrite; address.go for positions, head.go
//	documents   codec.go and codec_*.go, dictionary.go; stored.go and decoders.go
//	            for the form in which they leave the queue
//	segments    files.go names them, segmentwriter.go writes one, segmentfile.go
//	            and walk.go read it
//	Writer      writer.go assigns addresses, writer_block.go holds a pending block,
//	            writer_pipeline.go compresses and writes it; writer_open.go,
//	            writer_restore.go and writer_recover.go reopen a queue, head_file.go
//	            maintains the head, writer_training.go trains dictionaries
//	Reader      fetch.go reads a document from a file, fetch_batch.go many documents,
//	            fetch_document.go chooses the file; filecache.go and
//	            directory.go cache files and the listing; reader.go has the rest;
//	            tail.go, tail_rewrite.go and tail_wait.go for the entries in order
//	the whole   check.go, usage.go, compact*.go, repair*.go, truncate*.go;
//	            rewrite_file.go writes rewrites, rewrite_cover.go finds them
package queue
