package ingest

import (
	"fmt"

	"docstore/internal/units"
)

// verdict says what Replace does with a record.
type verdict int

const (
	equal   verdict = iota // the collection has the document
	changed                // it has another one
	added                  // it has none, unless the source has the id twice
	twice                  // the source has the id twice
)

// verdictOn returns the verdict on a record; seen: an earlier record has the same row.
func verdictOn(k known, seen bool) verdict {
	switch {
	case seen:
		return twice
	case k.row < 0:
		return added
	case k.same:
		return equal
	}
	return changed
}

// TooManyDeletesError is the error of Replace if the source lacks too many documents.
type TooManyDeletesError struct {
	Replaced
	Max float64 // ReplaceOptions.MaxDeletes
}

// Documents returns the number of documents in the collection.
func (e *TooManyDeletesError) Documents() int64 { return e.Equal + e.Changed + e.Deleted }

// Share returns the share of the documents that would be deleted.
func (e *TooManyDeletesError) Share() float64 { return float64(e.Deleted) / float64(e.Documents()) }

func (e *TooManyDeletesError) Error() string {
	has := units.FormatCountOf(e.Equal+e.Changed+e.Added, "document", "documents")
	if e.Equal+e.Changed+e.Added == 0 {
		has = "no documents"
	}
	return fmt.Sprintf("the input has %s; %s of the %s in the queue would be deleted (%.4g %%), and at most %.4g %% may be",
		has, units.FormatCount(e.Deleted), units.FormatCount(e.Documents()), e.Share()*100, e.Max*100)
}

// checkDeletes returns an error if a larger share than limit of the documents is deleted.
func (c Replaced) checkDeletes(limit float64) error {
	if e := (&TooManyDeletesError{c, limit}); e.Deleted > 0 && e.Share() > limit {
		return e
	}
	return nil
}

// bits is a set of numbers below a limit.
type bits []uint64

func newBits(limit int64) bits { return make(bits, (limit+63)/64) }

func (b bits) has(i int64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) set(i int64)      { b[i/64] |= 1 << (i % 64) }
