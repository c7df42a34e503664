package publish

import (
	"fmt"
	"time"
)

// Breaker decides when a stream stops to announce. It compares the entries of the last
// minute with bounds. The zero value has no bounds.
type Breaker struct {
	// MaxDeletes bounds the deletes as a fraction of documents and deletes; 0: no bound.
	MaxDeletes float64
	// MaxBad bounds the invalid records as a fraction of all records; 0: no bound.
	MaxBad float64
	// MaxRate bounds the documents and deletes per minute as a multiple of their average in
	// the minutes before, up to an hour; 0: no bound.
	MaxRate float64

	minutes []Counts // completed minutes, oldest first
	before  Counts   // the total when the minute began
	begin   time.Time
}

// Counts count records.
type Counts struct{ Documents, Deletes, Bad int64 }

func (c Counts) minus(other Counts) Counts {
	return Counts{c.Documents - other.Documents, c.Deletes - other.Deletes, c.Bad - other.Bad}
}

func (c Counts) entries() int64 { return c.Documents + c.Deletes }

const (
	breakerPeriod = time.Minute
	// breakerSample is the minimum number of records for a decision.
	breakerSample = 100
	// The average is of at most breakerHistory minutes, and of at least breakerMinimum.
	breakerHistory, breakerMinimum = 60, 5
)

// Check takes the total counts since the start, and returns why announcing must stop, or
// an empty string.
func (b *Breaker) Check(now time.Time, total Counts) string {
	if b.begin.IsZero() {
		b.begin = now
	}
	recent := total.minus(b.before)
	if n := len(b.minutes); n > 0 && recent.entries()+recent.Bad < breakerSample {
		last := b.minutes[n-1] // the minute has only begun
		recent = Counts{recent.Documents + last.Documents, recent.Deletes + last.Deletes, recent.Bad + last.Bad}
	}
	reason := b.judge(recent, total.minus(b.before))
	for now.Sub(b.begin) >= breakerPeriod {
		b.minutes = append(b.minutes, total.minus(b.before))
		b.minutes = b.minutes[max(0, len(b.minutes)-breakerHistory):]
		b.begin, b.before = b.begin.Add(breakerPeriod), total
		if now.Sub(b.begin) >= breakerHistory*breakerPeriod {
			b.Reset(total) // nothing is known about the last hour
			b.begin = now
		}
	}
	return reason
}

// Reset forgets the records up to a total.
func (b *Breaker) Reset(total Counts) { b.minutes, b.before, b.begin = nil, total, time.Time{} }

// judge compares the recent counts, and those of the current minute, with the bounds.
func (b *Breaker) judge(recent, minute Counts) string {
	entries, records := recent.entries(), recent.entries()+recent.Bad
	switch {
	case b.MaxDeletes > 0 && entries >= breakerSample && float64(recent.Deletes) > b.MaxDeletes*float64(entries):
		return fmt.Sprintf("%d of the last %d entries are deletes, more than %.1f %%", recent.Deletes, entries, 100*b.MaxDeletes)
	case b.MaxBad > 0 && records >= breakerSample && float64(recent.Bad) > b.MaxBad*float64(records):
		return fmt.Sprintf("%d of the last %d records are invalid, more than %.1f %%", recent.Bad, records, 100*b.MaxBad)
	case b.MaxRate == 0 || len(b.minutes) < breakerMinimum || minute.entries() < breakerSample:
		return ""
	}
	var sum int64
	for _, m := range b.minutes {
		sum += m.entries()
	}
	if average := float64(sum) / float64(len(b.minutes)); float64(minute.entries()) > b.MaxRate*average {
		return fmt.Sprintf("%d entries arrived within a minute, more than %.1f times the average of %.0f", minute.entries(), b.MaxRate, average)
	}
	return ""
}
