// Package follow serves a collection that is published in a bucket (package
// queue/publish).
//
//	f, err := follow.Open("jobs", b, "data/jobs", service.Replace, nil)
//	defer f.Close()
//
// # Target
//
// The target is the manifest that this server serves. The record of the collection
// determines it: the pin of the server's group, else the pin of all groups, else the canary
// of the server's group, else the announced manifest. A Follower reads the record every
// PollInterval and moves to a new target:
//
//   - To a later manifest: it fetches the missing files into the directory that the
//     collection tails. The collection cannot read beyond the target, because the
//     directory has no later files.
//   - To an earlier manifest, to a later one after bad manifests, and to one of another
//     queue: it makes another directory with the files of that manifest, as hard links if
//     the files exist locally, and opens another collection on it. The index of that
//     collection is the checkpoint made when the manifest was served, or reads on from the
//     latest checkpoint before it, or is built from the queue; a damaged checkpoint is
//     removed. When the new collection is ready, it replaces the current one.
//
// In the first case the collection serves the entries that have arrived, in the other cases
// the current collection is served until the move is complete: an entry of a bad manifest is
// never served. While the bucket is unreachable, the last target is served.
//
// # Readiness
//
// The goal of a start is the target, with the increments that exist when it is read first, or
// when the target changes before the goal is reached. A server is ready when its index includes
// the goal. Until then it finds no id missing: those that it does not have are unavailable. The
// goal is kept in CURRENT until what reaches it is durable. If the record cannot be read, the
// goal is the one in CURRENT, or else the state on the disk. Once the record was read, the number
// of the newest increment must be read, too.
//
// Later announcements, moves and failures do not make the server unready, except for the time in
// which a rewrite is here and what superseded the entries that it lacks is not. Only
// Options.MaxStaleness does: it bounds the time since the server last knew that it serves
// its target, with all increments.
//
// # Limits
//
// Options.Disk limits the bytes of the data directory. Before a download that does not fit,
// checkpoints are removed, the oldest first; then the move fails with ErrDiskLimit. A move
// that fails, also on a full disk, is repeated with growing pauses of at most 10 s, and the
// served manifest stays.
//
// # Increments
//
// While the target is the announced manifest, no pin holds this server and the publisher
// streams, a Follower looks for increments: 100 ms after the last one, and less often later,
// up to PollInterval. While it is behind, it reads many at the same time, without pauses. It
// appends them to the open segment of the queue that the collection tails. Before the first one
// it makes a checkpoint of the index at the end of the manifest.
// When a pin sets the manifest as the target, or when the local bytes are damaged or not part
// of the next manifest, it returns to that checkpoint as in a move to an earlier manifest. A
// state that is made for a manifest whose increments are wanted has all of them before it is
// served.
//
// # Shards
//
// With Options.Shard a Follower serves one of several shards of a collection: it follows the part
// of each manifest that describes the shard (publish.Manifest.Shard), in the same ways. The
// Followers of a collection share a Feed, which reads the record, each manifest and each
// increment once, with the bytes of all shards; it keeps 128 increments of at most 64 MiB in
// all, and reads at most twice as many bytes at the same time. The Followers move independently
// of each other. A shard of an announced manifest that has no documents is ready. A manifest
// with another layout is ErrLayout, and the one before is served: the documents of the other one
// are in other shards.
//
// # Files
//
//	CURRENT            the name of the state that is served, its manifest, the manifest whose
//	                   files are being added, and the goal of the start
//	state-0001/        the directory of a collection.Collection
//	state-0001/queue/  the queue that it tails
//	checkpoint-N/      an index at the end of manifest N, and hard links to its files
//
// CURRENT is JSON with a checksum of the rest of it. It is replaced atomically. If it is damaged,
// Open begins without files, and the collection is fetched again. Open removes the states that
// CURRENT does not name, which an interrupted move has left. CURRENT names the next manifest before
// its first file arrives: if the target becomes another one before all have arrived, the state is
// made again.
// CheckpointIndex reads CURRENT after it has copied the index, so that the copy holds no entries
// of manifests that its CURRENT does not name.
//
// A file gets its name after its digest was verified and the file was synced. So Open trusts
// the names and verifies headers and footers only; the background verification of the
// collection remembers the files that it has read, by size, inode and modification time. When
// it finds damage in a file, its quarantine renames the file, and the Follower fetches it
// again.
//
// Options.Source fetches files from other servers. FilesDir is the directory of the files
// that they may have.
//
// # Concurrency
//
// A Follower and a Feed are safe for concurrent use. One goroutine reads the record and moves;
// it also calls serve, except for the first call, which Open makes.
package follow
