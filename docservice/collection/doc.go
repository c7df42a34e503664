// Package collection ties a queue, which holds documents, to an index, which finds them, and
// serves both over Boxcar to clients of package docservice.
//
//	c, err := collection.Open("jobs", "queue", "data/jobs", nil)
//	service := collection.NewService(c)
//	server := boxcarrpc.NewServer(service.Handle, nil)
//
// It owns the index and its files: the tail, the background passes, the state of health, and
// the answers of this server. It must not know flags, processes, buckets or other servers.
// Methods, messages, limits of requests and the errors that a client can see are those of
// package docservice.
//
// # Overview
//
//	segments in queueDir                   index in dir
//	(written elsewhere, copied by rsync)   (built here, can be rebuilt)
//
//	  N.seg, N.open                          id  ->  address, expiry, place
//	      |                                  ""  ->  position
//	      |   tail: ids and addresses only        ^
//	      +---------------------------------------+
//	      |     in batches, each with the position after it
//	      |
//	      |   Get: id -> index -> address -> segment -> document
//	      +----------------------------------------------------->  caller
//	      |
//	      |   background pass: every byte of each segment that arrives
//	      +----------------------------------------------------->  faults
//
// A [Collection] has one queue and its index. One goroutine tails the queue. It collects
// entries in a batch, adds the position after the last entry under the empty key, which is
// no document's id, and applies the batch atomically when no entry is waiting, or after
// 4,096 entries or 1 MiB. Another goroutine verifies each sealed segment that arrives, once
// for each version of its file, and saves the results across restarts. A [Service] answers
// docstore.v1.Documents (docservicepb) for several collections; a docservice.Client calls it.
//
// The index value is 28 bytes; see entry.go and docs/format/place.md. Its place lets a get
// read only the bytes of the document, verified by its checksum, and no table of the
// segment. The layout of the collection's directory is in layout.go, the file of
// verification results in verified.go, and the messages in docservicepb/docservice.proto.
//
// # Answers
//
// An id has one of four answers:
//
//   - found: the document, byte for byte as it was appended. Its CRC and its id have been
//     checked.
//   - not found (docservice.ErrNotFound): never written, deleted, or expired. This answer is
//     given only while the collection is ready, and rests on verified bytes of the index; see
//     notfound.go. Expiry has a resolution of one second, and no document expires early.
//   - unavailable (docservice.ErrUnavailable): the document exists or may exist, but this
//     server cannot read it now. Its bytes are missing or damaged; or the id is not in the
//     index and the queue has not been read to its end, because the collection was just
//     opened, no segment has arrived yet, one is missing before others, or damage stops the
//     tail. Over Boxcar the error is marked "not processed", so the pool tries the next server. In a
//     batch, and for an id of a shard that this server is to serve but does not have yet, it
//     is the answer for the id, and the client asks other servers for those ids only.
//   - an error.
//
// A batch has an answer for each id in the order of the request. If the response would
// exceed docservice.MaxReplyBytes, ids at the end are left out and counted, but never all of them;
// the client requests them again.
//
// An hour after a document has expired, a background sweep removes its entry from the
// index; see sweep.go.
//
// # Lists
//
// [Collection.Scan] lists the ids with a prefix in byte order, with their documents, as of
// one moment; [Collection.Count] counts them. Over Boxcar a list is split into pages, each
// as of another moment: docservice.Client.Scan. A collection that is not ready returns no list,
// because ids could be missing.
//
// # On the wire
//
// A document is transferred in its stored form (package queue/stored): the daemon
// decompresses nothing. For a request that accepts no codec, or not the one of a document, it
// decodes the document.
//
// A get causes about four dependent cache misses. Those of the ids of a batch overlap.
//
// # Memcached
//
// With Options.Cache a collection stores its documents in memcached servers while
// tailing and reads from them first; see [Cache]. On a miss, a wrong value or a failure of
// the server it reads the segment. At most 8,192 loads wait for each server; more are
// dropped, so that neither the tail nor fetches wait.
//
// # Faults and recovery
//
// Each batch contains the position after it. After a crash the index is in the state of
// some earlier batch, and the tail continues from its position: no entry is skipped, and
// entries that are applied twice have the same result. A lost index is rebuilt from the
// queue.
//
// Damage found in files while a collection is open is recorded as a [Fault], logged once,
// and handled automatically:
//
//   - A wrong byte in a document makes this document unavailable. The background pass or a
//     get finds it. The fault is removed when the segment's file has been replaced by a
//     sound one.
//   - A wrong byte in a block's header or table, a segment of another queue than that of the
//     index, or a failure to write to the index stops the tail. The entries read so far are
//     served. The tail retries from the last position every second.
//   - With Options.Quarantine a file with wrong bytes is renamed to N.seg.bad,
//     once, so that rsync copies it again; see quarantine.go. Its sound documents are still
//     served, and an id that may lie in its unread part is unavailable.
//   - If an index is damaged or unreadable, the ids that it cannot decide are unavailable,
//     and the collection is not ready until an index rebuilt from the queue replaces it, which
//     must include what the damaged one has read.
//     Damage is found by lookups or by the scrub, which verifies the index continuously at a
//     low rate; see scrub.go.
//   - If the directory contains another queue, complete from its first segment, that queue is
//     indexed, and served when it has been read to its end. Until then the old queue is
//     served from the files that are left; see replacement.go.
//   - If the saved results of the background pass are damaged, everything is verified again.
//
// # Concurrency
//
// All methods are safe for concurrent use. Get takes no lock and allocates nothing except to
// grow dst. Close waits for the goroutines of the collection; calls in progress and later
// calls fail with ErrClosed.
//
// # Limits
//
//   - an id has 1 byte to 1 KiB, a document at most 16 MiB (package queue)
//   - a batch, a page of a scan and a response have those of package docservice
//   - a Status lists at most 128 faults ([MaxFaults]); 16 are kept for each segment
//   - a document cannot expire after 2106-02-07; a later time means never
//
// # Reading the source
//
//	collection        collection.go; store.go is one queue and its index, with a second
//	                  one during a replacement (replacement.go); options.go,
//	                  layout.go, entry.go, indexstate.go
//	reader            reader.go, notfound.go, batch.go, scan.go; cache.go and
//	                  package memcached
//	follower          tail.go, head.go
//	verifier          verify.go, verified.go, files.go, quarantine.go
//	settler           settle.go, unsettled.go
//	sweeper, scrubber sweep.go, scrub.go
//	health            health.go, faults.go, damage.go; wait.go waits for it; status.go,
//	                  census.go and inspect.go report it
//	service           service.go, shards.go; handler.go for Boxcar, stages.go for tracing, statsproto.go
package collection
