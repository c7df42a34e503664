// Package docservice serves documents by id: it ties a queue, which holds the
// documents, to an index, which finds them, and answers for both over Boxcar.
//
//	c, err := docservice.OpenCollection("jobs", "queue", "data/jobs", nil)
//	service := docservice.NewService(c)
//	server := boxcarrpc.NewServer(service.Handle, &boxcarrpc.ServerOptions{Prefetch: service.Ahead()})
//
//	pool, err := boxcarrpc.NewPool(servers, &boxcarrpc.PoolOptions{
//		Methods: docservice.IdempotentMethods(),
//	})
//	client := docservice.NewClient(pool, "jobs")
//	document, err := client.Get(ctx, nil, "4711")
//
// # The way of a document
//
//	segments in queueDir                   index in dir
//	(written elsewhere, come by rsync)     (made here, can be made again)
//
//	  N.seg, N.open                          id  ->  address, expiry, size
//	      |                                  ""  ->  position
//	      |   tail: ids and addresses only        ^
//	      +---------------------------------------+
//	      |     in batches, each with the position behind it
//	      |
//	      |   Get: id -> index -> address -> segment -> document
//	      +----------------------------------------------------->  caller
//	      |
//	      |   background pass: every byte of each segment that arrives
//	      +----------------------------------------------------->  faults
//
// A [Collection] has one queue and its index. One goroutine tails the queue: it
// gathers entries in a batch, adds the position behind the last of them under
// the empty key, which is no document's id, and applies the batch atomically
// when nothing more is waiting or 4,096 entries or 1 MiB have come together.
// Another one verifies each sealed segment that arrives, once for each version
// of its file, and keeps the results over a restart. A [Service] answers
// docstore.v1.Documents (docservicepb) for several collections, and a [Client] asks.
//
// The index value is 20 bytes; see entry.go, where it is drawn. layout.go has the
// collection's directory, verified.go the results of the background pass, and
// docservicepb/docservice.proto the messages.
//
// # Answers
//
// For an id there are four:
//
//   - found: the document, byte for byte as it was appended. Its CRC has been
//     checked, and that it is the one of this id.
//   - not found (ErrNotFound): never written, deleted, or expired. It is answered only
//     while the collection is ready, and rests on verified bytes of the index; see
//     notfound.go. Expiry has the resolution of a second, and no document expires early.
//   - unavailable (ErrUnavailable): the document exists or may exist, but not
//     here and now. Its bytes are missing or damaged; or the id is not in the
//     index and the queue has not been read to the end of what is here, because
//     the collection has just been opened, no segment has arrived yet, one is
//     missing before others, or damage stops the tail. Over Boxcar this is
//     "not processed", so that the pool asks the next server; in a batch it is
//     the answer for the id, and the client asks again for those ids alone.
//   - an error.
//
// A batch has an answer for each id in the order asked. Where the response
// would exceed [MaxReplyBytes], ids at the end are left out and counted, never
// all of them; the client asks for them again.
//
// An hour after a document has expired, a background sweep takes its entry out
// of the index, so that an index of documents that come and go does not grow for
// ever. See sweep.go.
//
// # Lists
//
// [Collection.Scan] shows all ids that begin alike, in the order of their bytes,
// with their documents, as they were at one moment, and [Collection.Count] counts
// them. Over Boxcar they come in pages, each of its own moment: [Client.Scan].
// Until the collection is ready there is no list, for it could have holes.
//
// # On the wire
//
// A document travels as it is stored, with its checksum, its codec and the hash
// of its dictionary: the daemon decompresses nothing, and the client verifies
// what the writer wrote and decodes it. It fetches a dictionary once, the first
// time a document names it. [Client.Plain] asks for plain bytes instead, and so
// does a client that lacks the codec, or for a document whose dictionary it
// cannot get. See decode.go and docs/format/stored.md.
//
// A get waits for memory some five times, each time for where to look next. In a batch
// documents wait together, and so do gets that arrive together on a connection: the
// server fetches ahead what they need, see [Service.Ahead], and then answers each by
// itself.
//
// # Memcached
//
// With CollectionOptions.Cache a collection loads its documents into memcached
// servers as it tails and serves from them; see [Cache]. Where they have no
// answer, or a wrong one, or are away, the segments are read as ever. Loads wait
// in a queue of 8,192 for each server, and more are dropped: neither tail nor
// fetches wait for them.
//
// # Faults and recovery
//
// The position is in the batch that it describes. So after a crash the index is
// as of some moment, with the position of that moment, and the tail goes on from
// there: nothing is skipped, and what is read twice leads to the same entries.
// A lost index is made again from the queue.
//
// Whatever goes wrong with files while a collection is open is recorded as a
// [Fault], logged once, and goes away by itself:
//
//   - A wrong byte in a document makes this document unavailable. It is found by
//     the background pass or when the document is asked for, and forgotten when
//     the segment's file has been replaced and verifies well.
//   - A wrong byte in a block's header or table, a segment of another queue than
//     the index was made from, or an index that cannot be written stop the tail.
//     What has been read is served. The tail tries again from the last position
//     every second, and goes on as soon as it can.
//   - With CollectionOptions.Quarantine a file with wrong bytes is renamed to
//     N.seg.bad, once, so that rsync brings another copy; see quarantine.go. Its
//     sound documents are served on, and an id that may lie in what was not read
//     of it is unavailable.
//   - An index that is damaged or cannot be read makes the ids that it cannot decide
//     unavailable, and the collection is not ready until another one, built from the
//     queue, replaces it. Lookups find the damage, or the scrub, which verifies the
//     index continuously at a low rate; see scrub.go.
//   - Another queue in the place of the one that is served, whole from its first
//     segment, is indexed beside it and served when it has been read to its end.
//     Until then the one before is, as far as its bytes are there; see
//     succession.go.
//   - Damage in the results of the background pass has it read everything again.
//
// # Concurrency
//
// All methods may be called from many goroutines at once. Get takes no lock and
// allocates nothing beyond dst. Close waits for the goroutines of the
// collection; calls under way or later fail with ErrClosed.
//
// # Limits
//
//   - an id has 1 byte to 1 KiB, a document at most 16 MiB (package queue)
//   - a batch has at most 16,384 ids ([MaxBatchIDs]), a response at most
//     [MaxReplyBytes]
//   - a page of a scan has up to 4,096 ids ([MaxScanIDs]), 1,000 if no number is
//     asked for, and at most [MaxReplyBytes]
//   - a client keeps 16 MiB of dictionaries
//   - a Status lists at most 128 faults ([MaxFaults]), and 16 of each segment
//     are kept
//   - a document cannot expire after 2106-02-07; one that should never does
//
// # Reading the source
//
//	a collection      collection.go; store.go is one queue and its index, of which it
//	                  has two while one takes over from the other (succession.go);
//	                  options.go, layout.go, entry.go
//	its answers       store.go, notfound.go, batch.go, scan.go; cache.go and package
//	                  memcached
//	its goroutines    tail.go follows the queue; verify.go, verified.go, files.go and
//	                  quarantine.go are the background pass, with erased.go;
//	                  sweep.go and scrub.go go through the index; wait.go waits for them
//	how it is doing   faults.go and damage.go, status.go, census.go, inspect.go
//	the service       service.go, wire.go and statsproto.go, documents.go for gRPC,
//	                  stages.go for tracing, ahead.go for gets that arrive together
//	the Client        client.go, client_scan.go, decode.go
package docservice
