// Package queue keeps documents in a directory of append-only files that are
// fit to be copied by rsync: each version of a document is written once,
// sequentially, has a permanent address, and is read back by it in constant
// time.
//
// A Writer appends documents and deletes:
//
//	w, err := queue.OpenWriter(dir, nil)
//	address, err := w.Append([]byte("id"), document)
//	err = w.Flush() // from here on it is durable and readers see it
//	err = w.Close()
//
// A Reader, in the same directory or in a copy of it, follows what is appended
// to build an index, and fetches documents by their addresses:
//
//	r, err := queue.OpenReader(dir, nil)
//	err = r.Tail(ctx, queue.Position{}, func(e queue.Entry) error { ... })
//	document, err := r.DocumentFor(nil, id, address)
//
// # Concurrency
//
// A directory has one Writer, guarded by a lock that ends with its process, and
// any number of Readers. Any number of goroutines may use a Writer or a Reader
// at once. Appends take a mutex; fetching a document takes no lock. What Entry
// holds is valid until the function it was passed to returns.
//
// A Writer compresses with all processors and writes in the background: appends
// go on while blocks are compressed and while Flush waits for the disk, which
// begins to write as soon as there is a megabyte for it. At most 8 MiB of
// documents wait for it; then Append waits, too.
//
// # Files
//
// A queue is a row of segments, numbered from 1 without holes, save where
// rewrites stand for them (see Space). A sealed one is
// 0000000001.seg and never changes; the last one may be 0000000002.open, which
// only grows. LOCK is the writer's lock and need not be copied. 0000000000.head
// states how far the queue reaches at its source (docs/format/head.md). A segment:
//
//	+--------+------------+-------+-------+------+-------+------+--------+
//	| header | dictionary | block | block | mark | block | mark | footer |
//	+--------+------------+-------+-------+------+-------+------+--------+
//
//	header       the queue's id, the segment's number, the codec, and the digest
//	             of the footer of the segment before
//	dictionary   what the codec was given beforehand, often nothing
//	block        a table of entries, ids and a cursor, with a checksum of the
//	             whole and the checksum of the block before; then the documents,
//	             each compressed by itself, with a checksum of its own
//	commit mark  all before it is durable where it was written
//	footer       totals; the segment is complete
//
// docs/format/segment.md has every byte. An address is the segment's number,
// the offset of the block in it and the index of the entry in the table. Where
// a block is going to lie is known before it is compressed, so Append returns
// the address at once.
//
// A document's checksum covers its address, id and length besides its bytes: to
// fetch it the block's table need not be read, and what is returned is the
// right document or none.
//
// For use elsewhere a document can be had as it is stored: StoredFor gives its
// stored form (docs/format/stored.md), which ParseStored verifies and Decoders
// decode, fetching each dictionary once. Neither end of the way between has to
// know the segments.
//
// Documents of sealed segments are read from mappings of their files, others by
// system calls. What is decoded is always a copy that was verified, so it makes
// no difference to a reader if somebody writes into a mapped file or cuts it.
//
// # Durability
//
// Flush writes the block, makes the file durable, and then writes the commit
// mark. Readers deliver what stands before a valid mark or footer, so no copy is
// ever ahead of the source, whatever the source loses. Seal makes everything
// durable, writes the footer, makes that durable, renames, and makes the name
// durable. The first failed write is final for a Writer.
//
// A cursor that was set travels with the next block: the place in the input
// from which to go on is exactly as old as the entries that are there.
//
// # Recovery
//
// OpenWriter seals a segment that was left open: it cuts it behind its last
// whole block, marked or not, and adds the footer. Blocks behind the last mark
// count only if their documents are whole, too. It never appends to such a
// file, since copies of what was cut may be about. Damage before a mark is
// nothing that an unclean stop can cause: then OpenWriter fails and leaves the
// file alone.
//
// OpenWriter refuses a directory with less than the head states, since an address
// must not name two documents: ErrIncomplete. Truncate takes entries back. It uses no
// segment number again: a rewrite (see Space) replaces the segments up to the highest
// and notes the range that was taken back.
//
// # Histories
//
// A Position carries a Proof of the content before it: the digest of the segment
// before and the checksum of the block before. The Tail that starts there compares
// both with the files. If files are whole and do not match, they belong to another
// history of the queue, such as a source that was restored from an older copy and
// written again: ErrForked, at every attempt. A position in a range that was truncated
// is a *TruncatedError. While the file of the position is missing or shorter, the Tail
// waits and does not report that it has caught up; after half a minute without a
// change a shorter file is ErrForked, too. Rewrites hold the digest, the end and the
// last checksum of each segment that they replace, and the checksum of each block that
// they keep a part of. A position behind another block in the middle of a segment is
// proved by the segment before it only.
//
// # Copies under way
//
// A reader cannot know how its files are written: by the Writer, by rsync into
// a new file, or by rsync into the file itself. One rule decides what a wrong
// or missing byte means: files are filled in order, so before a valid commit
// mark or footer it is damage, and behind the last of them it is not there yet.
// Damage ends Tail with a *CorruptionError; a good copy in the damaged file's
// place lets the next Tail go on. What is not there yet is waited for, and so is
// a segment whose number is missing. Of one case the rule knows nothing: a
// damaged footer looks like one that has not arrived. So a sealed segment
// without footer that has not changed for half a minute while later segments are
// there is damaged, too.
//
// Tail looks for more every ReaderOptions.PollInterval. On Linux inotify has it
// look at once when a file of the directory is written or put there: a hint, and
// never needed. Where there is none (another file system, a network's, or a user
// who has too many watches, which is logged) entries are only seen later, by up to
// the interval.
//
// Where 0000000002.seg and 0000000002.open are both there the first is asked
// first, and the other one where it does not help.
//
// # Dictionaries
//
// s2 and zstd compress small documents far better with a dictionary of typical
// content. The Writer trains it in the background from a sample of what was
// appended and uses it from the next segment on; a segment without one ends
// early when there is one to be had. That delays no document, except that who
// writes so fast as to have 4 MiB in a segment without one while the first is
// being trained waits for it, about a tenth of a second, once. A new dictionary
// takes the place of another only if it stores 3 % less, and one is used only
// where segments hold at least 16 times its size.
//
// # Space
//
// A document that was overwritten or deleted, or has expired, keeps its bytes.
// Reader.Usage tells how many of each segment's are dead, exactly, from the
// tables alone and in bounded memory.
//
// Compact rewrites runs of sealed segments without what is dead, into files
// named 0000000003-0000000005.0001.seg: the first rewrite of the segments 3 to 5.
// What is kept keeps its address. Readers take the rewrite with the highest
// generation that is whole in the place of the segments, which are removed only
// when asked. A name of its own, and not the next number, spares the Writer and
// Compact a counter that both would take from. An address that a rewrite has
// left out is a *GoneError. With EraseDead it rewrites whatever holds a document
// that has been dead for long, and each dictionary that may have been made of one.
//
// # Repair
//
// Repair makes a damaged queue whole again: what can be proved to be right goes
// into rewrites, at its old addresses. A document that is damaged keeps its entry,
// so that no older version comes to light, and is a *LostError. Where ids are lost
// the rewrite has the range of addresses, and what is asked for there is a
// *LostError, too.
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
//	Writer      writer.go decides where everything lies, writer_block.go holds a
//	            block on its way, writer_pipeline.go compresses and writes it;
//	            writer_open.go, writer_restore.go and writer_recover.go continue a
//	            queue, head_file.go keeps the head, writer_training.go makes
//	            dictionaries
//	Reader      fetch.go reads a document from a file, fetch_batch.go many documents,
//	            fetch_document.go chooses the file; filecache.go, slots.go and
//	            directory.go keep files and the listing; reader.go has the rest;
//	            tail.go, tail_rewrite.go and tail_wait.go for the entries in order
//	the whole   check.go, usage.go, compact*.go, repair*.go, truncate*.go;
//	            rewrite_file.go writes rewrites, rewrite_cover.go finds them
package queue
