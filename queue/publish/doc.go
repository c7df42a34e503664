// Package publish keeps the sealed files of a queue in a bucket, with manifests that say
// which files make up the queue at a moment, and restores a queue from them.
//
//	p, err := publish.OpenPublisher(ctx, b, dir, nil)
//	published, err := p.Publish(ctx) // uploads what is new, and commits a manifest
//
//	m, err := publish.FindManifest(ctx, b, 0, time.Now) // the newest
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
// The record names the newest manifest, a manifest the one before it, and a commit the
// commit before it, each with its digest. So the newest commit proves everything that it
// reaches, and a reader detects any change of an object.
//
// # Commit
//
// A Publisher uploads files, then the manifest, and then creates the next commit. The
// create-only put of the commit is the commit point: before it, the objects are unknown to
// readers, and a crash leaves objects that the next Publish finds and uses. Of two
// publishers that create the same commit one succeeds; the other reads the new record,
// finds that it is not the owner any more, and fails with ErrFenced. A commit whose
// response was lost is recognized by its nonce.
//
// Manifests are made of sealed files only. Publish refuses a queue that lacks entries of
// the newest manifest: an older copy, or one that was restored and written again.
//
// # Recovery
//
// Restore verifies the digest of each file before it gets its name, and can be repeated
// after any failure. The restored directory is a queue that a Writer continues. Entries
// that were never published are lost with the directory they were in.
package publish
