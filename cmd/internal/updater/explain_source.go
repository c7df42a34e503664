package updater

import (
	"cmp"
	"fmt"
	"time"

	"docstore/docservice/explain"
	"docstore/queue"
	"docstore/queue/publish"
)

// sourceVerdict is the reason why an id is served or not, as far as the source knows.
type sourceVerdict string

const (
	sourceAbsent       sourceVerdict = "absent"        // the queue has no entry
	sourceDeleted      sourceVerdict = "deleted"       // and servers may know it
	sourceErased       sourceVerdict = "erased"        // deleted, and no document is left in the files
	sourceExpired      sourceVerdict = "expired"       // the newest version
	sourcePresent      sourceVerdict = "present"       // in the queue; it is copied without manifests
	sourceNotPublished sourceVerdict = "not_published" // in no manifest and no increment
	sourceNotAnnounced sourceVerdict = "not_announced" // in a manifest after the announced one
	sourceRolledBack   sourceVerdict = "rolled_back"   // in a manifest that a rollback has marked as bad
	sourcePinned       sourceVerdict = "pinned"        // some servers are held at an older manifest
	sourceAnnounced    sourceVerdict = "announced"     // servers that follow the collection have it
)

// sourceFacts are the facts about an id at the source. The times of Newest are those of the queue.
type sourceFacts struct {
	ID        string
	Dir       string // of the collection
	Queue     string // directory of the queue, or of the shard
	End       queue.Position
	Newest    *queue.Entry // nil: none; its ID is not set
	Documents int          // entries that are not deletes
	// Before and After are the places in the source before and after the records of the block
	// of the newest entry; empty: not known.
	Before, After string
	Bucket        string         // URL; empty: none was given
	Record        publish.Record // of the bucket
	Place         publish.Place  // of the newest entry in the bucket
	Now           time.Time
}

// explainSource returns the verdict, its reason, and a command that helps. It is a pure function.
func explainSource(f sourceFacts) (verdict sourceVerdict, reason, command string) {
	e := f.Newest
	if e == nil {
		return sourceAbsent, fmt.Sprintf("the queue has no entry with the id up to %s: it was never appended, or compaction has removed its delete", f.End.Next),
			"docstore-updater append --queue " + f.Dir
	}
	what := "version"
	if e.Deleted {
		what = "the delete at"
	}
	what = fmt.Sprintf("%s %s, appended at %s,", what, e.Address, e.Appended.UTC().Format(time.RFC3339))
	if f.Bucket != "" {
		if verdict, reason, command := f.unpublished(); verdict != "" {
			return verdict, what + " " + reason, command
		}
	}
	switch {
	case e.Deleted && f.Documents == 0:
		return sourceErased, what + " is the newest entry, and no document of it is left in the files", ""
	case e.Deleted:
		return sourceDeleted, what + " is the newest entry", fmt.Sprintf("docstore-updater get %s --versions --queue %s", explain.Quoted(f.ID), f.Dir)
	case !e.Expires.IsZero() && !e.Expires.After(f.Now):
		return sourceExpired, fmt.Sprintf("%s expired at %s", what, e.Expires.UTC().Format(time.RFC3339)), ""
	case f.Bucket == "":
		return sourcePresent, what + " is the newest: servers have it once their copies do", "boxcar explain " + explain.Quoted(f.ID) + " --collection NAME"
	}
	return sourceAnnounced, what + " is announced: servers have it once they have fetched it", "boxcar explain " + explain.Quoted(f.ID) + " --collection NAME"
}

// unpublished returns why servers do not have the newest entry; "": they may have it.
func (f *sourceFacts) unpublished() (verdict sourceVerdict, reason, command string) {
	r, p, bucket := &f.Record, &f.Place, " --bucket "+f.Bucket
	switch {
	case p.Manifest == 0 && r.Frozen:
		return sourceRolledBack, "is not published: a rollback is in progress", fmt.Sprintf("docstore-updater revert%s --queue %s --to %d", bucket, f.Dir, r.Target("").Number)
	case p.Manifest == 0 && r.Held != "":
		return sourceNotPublished, "is not announced: the stream has stopped: " + r.Held, "docstore-updater announce" + bucket
	case p.Manifest == 0:
		return sourceNotPublished, fmt.Sprintf("is in no manifest up to %d, and in no increment: its segment is not sealed, or was not published", r.Head.Number),
			fmt.Sprintf("docstore-updater seal --queue %s && docstore-updater publish --queue %[1]s%[2]s", f.Dir, bucket)
	case r.IsBad(p.Manifest):
		return sourceRolledBack, fmt.Sprintf("is in manifest %d, which a rollback has marked as bad", p.Manifest),
			fmt.Sprintf("docstore-updater revert%s --queue %s --to %d", bucket, f.Dir, r.Target("").Number)
	case p.Manifest > r.Announced.Number:
		reason = fmt.Sprintf("is in manifest %d, and %d is announced", p.Manifest, r.Announced.Number)
		if r.Held != "" {
			reason += ": the stream has stopped: " + r.Held
		}
		return sourceNotAnnounced, reason, fmt.Sprintf("docstore-updater announce%s --to %d", bucket, p.Manifest)
	}
	for _, pin := range r.Pins {
		// A pinned server serves a manifest exactly, without increments.
		if pin.To.Number < p.Manifest || pin.To.Number == p.Manifest && p.Increment > 0 {
			servers, flag := "all servers are", ""
			if pin.Group != "" {
				servers, flag = "servers of group "+pin.Group+" are", " --group "+pin.Group
			}
			return sourcePinned, fmt.Sprintf("is in manifest %d, and %s pinned to %d by %s", p.Manifest, servers, pin.To.Number, cmp.Or(pin.By, "an unknown user")),
				"docstore-updater unpin" + bucket + flag
		}
	}
	return "", "", ""
}
