// Package follow serves a collection that is published in a bucket (package
// queue/publish).
//
//	f, err := follow.Open("jobs", b, "data/jobs", service.Replace, nil)
//	defer f.Close()
//
// # Target
//
// The record of the collection names the manifest that this server serves, its target: the
// pin of the server's group, the pin of all groups, or the announced manifest. A Follower
// reads the record every PollInterval and moves to a new target:
//
//   - To a later manifest: it fetches the files that are missing into the directory that
//     the collection tails. The collection cannot read beyond the target, because the
//     directory holds no later files.
//   - To an earlier manifest: it makes another directory with the files of that manifest,
//     hard links where the files are here, and opens another collection on it. Its index
//     is the checkpoint that was made when this manifest was the target, or, if that is
//     gone, is built from the queue. When the new collection is ready it replaces the
//     present one.
//
// Until the target is reached, the manifest before is served. While the bucket cannot be
// reached, the last target is served.
//
// # Files
//
//	CURRENT            the name of the state that is served, and its manifest
//	state-0001/        the directory of a docservice.Collection
//	state-0001/queue/  the queue that it tails
//	checkpoint-N/      an index at the end of manifest N
//
// CURRENT is replaced atomically. States that it does not name are the remains of a move
// that was interrupted, and are removed.
//
// A file that the collection has found damaged is renamed by its quarantine and is fetched
// again.
package follow
