// Package publish uploads the sealed files of a queue to a bucket, commits manifests that
// list them, and restores a queue from a manifest.
//
//	p, err := publish.OpenPublisher(ctx, b, dir, nil)
//	published, err := p.Publish(ctx) // uploads what is new, and commits a manifest
//
//	m, _, err := publish.FindManifest(ctx, b, 0, time.Now) // the newest
//	err = publish.Restore(ctx, b, m, dir, nil)
//
// # Objects
//
// All objects are immutable (see package bucket):
//
//	file/DIGEST               a sealed segment or rewrite, by the SHA-256 of its bytes
//	manifest/NUMBER-DIGEST    a Manifest: JSON, compressed with zstd
//	commit/NUMBER             a version of the collection's Record: JSON
//
// The record names the newest manifest, a manifest the previous manifest, and a commit the
// previous commit, each with its digest. So a reader that trusts the newest commit detects
// any change of an object that it reaches.
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
// A manifest lists sealed files only. Publish refuses a queue that lacks entries of the
// newest manifest: an older copy, or a copy that was restored and written again.
//
// # Recovery
//
// Restore verifies the digest of each file before it gets its name, and can be repeated
// after any failure. A Writer can continue the restored queue. Entries that were not
// published are not restored.
//
// # Concurrency
//
// A Log is safe for concurrent use, a Publisher and a Replica are not. The methods of
// Record return a changed copy.
//
// # Limits
//
// A manifest lists at most MaxFiles files and has at most MaxManifestBytes, compressed. A
// record has at most MaxPins pins.
package publish
