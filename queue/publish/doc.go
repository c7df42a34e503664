// Package publish keeps the published states of a queue in a bucket: it uploads sealed files,
// commits numbered manifests that list them, and determines which manifest servers serve.
//
//	p, err := publish.OpenPublisher(ctx, b, dir, nil)
//	published, err := p.Publish(ctx) // uploads new files, and commits a manifest; Live does it while the queue is written
//
//	m, _, err := publish.FindManifest(ctx, b, 0, time.Now) // the newest
//	err = publish.Restore(ctx, b, m, dir, nil)
//
// # Objects
//
// All objects are immutable (see package bucket):
//
//	file/EPOCH-DIGEST              a sealed segment or rewrite, by the SHA-256 of its bytes
//	manifest/NUMBER-DIGEST         a Manifest: JSON, compressed with zstd
//	increment/NUMBER-DIGEST/COUNT  an Increment of that manifest: a line of JSON, and bytes
//	commit/NUMBER                  a version of the collection's Record: JSON
//
// The record names the newest manifest. A manifest names the previous manifest, an
// increment the previous increment, and a commit the previous commit, each with its digest.
// So a reader that trusts the newest commit detects any change of an object that it reaches.
//
// # Commit
//
// A Publisher uploads files, then the manifest, and then creates the next commit. The
// create-only put of the commit is the commit point: before it, readers do not know the
// objects, and a crash leaves objects that the next Publish uses. If two publishers create
// the same commit, one succeeds; the other reads the new record, is no longer its owner,
// and fails with ErrFenced. A publisher recognizes its own commit, after a lost response,
// by the nonce.
//
// With an Arbiter (package etcdlog) the commit point is a transaction of the Arbiter, which
// also requires the publisher's lease. Each commit is copied to the bucket before the next
// one, so that the bucket alone suffices to restore the Arbiter: Log.Restore.
//
// A manifest lists sealed files only. Publish refuses a queue that lacks entries of the
// newest manifest: an older copy, or a copy that was restored and written again.
//
// # Shards
//
// A collection has one or more shards, each a queue (package queue/shard). One Publisher
// commits manifests of all of them: one chain, one record, one lease. A manifest has the
// layout, a head for each shard, and files with the names shard-0007/0000000001.seg, or
// 0000000001.seg if there is one shard; Manifest.Shard returns the manifest of one shard,
// which is that of a collection of one shard. The moments at which a manifest ends the shards
// are not related, unless all were sealed together. A layout never changes: another one is
// another generation.
//
// Restore, Validate, Revert, Discard and Compare work on all shards, one after the other. If
// they are interrupted, some shards are done; each can be repeated.
//
// # Targets
//
// A server serves the target of its group (Record.Target): the pin of the group, the pin of
// all groups, the canary of the group, or the announced manifest. Validate reads a manifest
// back from the bucket; only a validated manifest can be announced. Record has the
// operations as pure functions: Announce, StartCanary, Pin, Unpin, Rollback, Retain and
// Release. Rollback marks later manifests as bad and freezes announcing, since manifests
// after them hold their entries, too. Revert appends what makes the queue equal to an earlier
// manifest, and announcing its manifest ends the rollback. Discard truncates the queue to the
// manifest before one that was refused and never served; the next manifest names that one as
// its parent. A Publisher with NewGeneration lets another queue replace the collection.
//
// Collect deletes the objects that no manifest in use lists. maintain.Compact keeps the versions
// that RetainedStates need.
//
// # Increments
//
// While its newest manifest is announced, a Publisher can announce the committed blocks of
// the open segment as increments (Publisher.Extend). A server appends their bytes to its
// copy of the segment (Extension), and needs only the rest when the sealed segment is in the
// next manifest. The increments of a manifest are numbered, and each is created once. A
// publisher that takes over creates an empty one first, so that the previous publisher
// cannot continue them. It refuses a queue that lacks announced documents; the Publisher syncs
// the segment before each increment, so a power loss of the ingest host does not cause that.
// A server whose bytes are not part of the sealed segment gets ErrDiverged and returns to the
// manifest. An increment has the new bytes of all shards, and states for each shard the digest
// of all bytes before its end; a server adds those of its shards.
// A manifest includes everything that increments of its parent have announced: Publish refuses
// shards if only some were sealed.
//
// # Recovery
//
// Restore verifies the digest of each file before it gets its name, and can be repeated
// after any failure; RestoreIncrements adds the increments. A Writer can continue the
// restored queue. Entries that were neither published nor announced are not restored.
//
// # Concurrency
//
// A Log is safe for concurrent use; a Publisher, a Replica and an Extension are not. The
// methods of Record return a changed copy.
//
// # Limits
//
// A manifest lists at most MaxFiles files, has at most MaxManifestBytes, compressed, and at
// most MaxIncrements increments. MaxAhead of them, of at most 64 MiB, are read at the same time,
// and 256 KiB of each first. A record has at most MaxPins pins and MaxRetained retained
// manifests, and encodes to at most 64 KiB.
package publish
