package publish

import (
	"context"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"

	"github.com/cockroachdb/errors"
)

// Bounds are the conditions of Validate that depend on the collection. The zero value has
// none.
type Bounds struct {
	// RequiredIDs must have a document.
	RequiredIDs []string
	// MinDocuments is the minimum number of documents in all files, including superseded ones.
	MinDocuments int64
	// MaxDeletes bounds the deletes in files that the accepted manifest does not list, as a
	// fraction of the documents that it lists. If the accepted manifest is of another queue,
	// it bounds how many documents fewer there are. Zero means no bound.
	MaxDeletes float64
}

// Validate reads a manifest's files back from the bucket, into the directory of a Replica,
// and verifies them: digests, the chain of segments, every byte of files that accepted does
// not list, and the tables of all. accepted is the newest manifest that was validated, nil
// if there is none. ErrCorrupt: the bucket holds damaged objects. ErrRejected: the content
// is outside the bounds.
func Validate(ctx context.Context, b bucket.Bucket, m, accepted *Manifest, dir string, bounds Bounds, opts *Options) error {
	options := opts.withDefaults()
	if accepted == nil {
		accepted = new(Manifest)
	}
	for i := range m.Layout.Shards {
		if err := checkChain(m.queueAt(i)); err != nil {
			return err
		}
	}
	if err := NewReplica(b, dir, &options).Fetch(ctx, m); err != nil {
		return err
	}
	var rejected error
	for i := range m.Layout.Shards {
		err := validateQueue(ctx, m, accepted, i, dir, bounds, options)
		switch {
		case errors.Is(err, ErrRejected):
			rejected = err // damage in another queue comes first
		case err != nil:
			return err
		}
	}
	if documents := m.Documents(); documents < bounds.MinDocuments {
		return Rejected("manifest %d has %d documents, want at least %d", m.Number, documents, bounds.MinDocuments)
	}
	if err := checkDeletes(m, accepted, bounds.MaxDeletes); err != nil {
		return err
	}
	return rejected
}

// validateQueue verifies one queue of a manifest. The ids that are required in it must have
// documents.
func validateQueue(ctx context.Context, m, accepted *Manifest, i int, dir string, bounds Bounds, options Options) error {
	dir = m.Layout.Dir(dir, i)
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: options.FS})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it only reads
	if err := verifyNew(ctx, options.FS, dir, m.queueAt(i), accepted); err != nil {
		return err
	}
	required := slices.DeleteFunc(slices.Clone(bounds.RequiredIDs), func(id string) bool { return m.Layout.ShardString(id) != i })
	return checkRequired(ctx, r, m, required, options.Now())
}

// checkChain returns an error unless each file follows the one before it.
func checkChain(m *Manifest) error {
	next := queue.SegmentID(1)
	ends := Hex16{}
	for _, f := range m.Files {
		name, _ := queue.ParseFileName(f.Name)
		switch {
		case name.First != next:
			return corrupt("manifest %d lists %s, want a file of segment %d", m.Number, f.Name, next)
		case ends != Hex16{} && f.Follows != Hex16{} && f.Follows != ends:
			return corrupt("manifest %d: %s follows a segment with the digest %x, and the one before it has %x", m.Number, f.Name, f.Follows, ends)
		}
		next, ends = name.Last+1, f.Ends
	}
	if next != m.Heads[0].Sealed+1 {
		return corrupt("manifest %d ends with segment %d, and its head with %d", m.Number, next-1, m.Heads[0].Sealed)
	}
	return nil
}

// verifyNew verifies every byte of the files that accepted does not list.
func verifyNew(ctx context.Context, fsys vfs.FS, dir string, m, accepted *Manifest) error {
	known := map[Digest]bool{}
	for _, f := range accepted.Files {
		known[f.Digest] = true
	}
	for _, f := range m.Files {
		if known[f.Digest] {
			continue
		}
		report, err := maintain.CheckFile(ctx, fsys, dir, f.Name)
		switch {
		case err != nil:
			return err
		case len(report.Damage) > 0:
			return corrupt("%s of manifest %d: %v", f.Name, m.Number, report.Damage[0])
		case report.Documents != f.Documents || report.Deletes != f.Deletes:
			return corrupt("%s of manifest %d has %d documents and %d deletes, want %d and %d", f.Name, m.Number, report.Documents, report.Deletes, f.Documents, f.Deletes)
		}
	}
	return nil
}

// checkRequired reads the tables of all files of a queue, which must have documents with the
// required ids.
func checkRequired(ctx context.Context, r *queue.Reader, m *Manifest, required []string, now time.Time) error {
	present := make(map[string]bool, len(required))
	for _, id := range required {
		present[id] = false
	}
	err := r.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		if _, required := present[string(e.ID)]; required {
			present[string(e.ID)] = !e.Deleted && (e.Expires.IsZero() || e.Expires.After(now))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range required {
		if !present[id] {
			return Rejected("manifest %d has no document with id %q", m.Number, id)
		}
	}
	return nil
}

// checkDeletes bounds the deletes since accepted, or how many documents fewer another queue
// has.
func checkDeletes(m, accepted *Manifest, fraction float64) error {
	if fraction == 0 || accepted.Number == 0 {
		return nil
	}
	before := accepted.Documents()
	if !m.sameQueues(accepted) {
		if documents := m.Documents(); float64(documents) < (1-fraction)*float64(before) {
			return Rejected("manifest %d, of another queue, has %d documents, more than %.1f %% fewer than the %d of manifest %d", m.Number, documents, 100*fraction, before, accepted.Number)
		}
		return nil
	}
	if deletes := newDeletes(m, accepted); float64(deletes) > fraction*float64(before) {
		return Rejected("manifest %d deletes %d documents since manifest %d, more than %.1f %% of its %d", m.Number, deletes, accepted.Number, 100*fraction, before)
	}
	return nil
}

// newDeletes counts the deletes in segments after those of accepted.
func newDeletes(m, accepted *Manifest) int64 {
	var deletes int64
	for i := range m.Layout.Shards {
		before := accepted.Heads[i].Sealed
		for _, f := range m.queueAt(i).Files {
			if name, _ := queue.ParseFileName(f.Name); name.First > before {
				deletes += f.Deletes
			}
		}
	}
	return deletes
}
