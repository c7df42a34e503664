package livepage

import (
	"time"

	"docstore/docservice/readiness"
)

// Sum describes shards of a collection, at least one, as one collection. Counts
// and bytes are sums, times and lags in seconds those of the shard that is furthest behind.
// It has no position, segments and tables: those of the shards have nothing in common.
func Sum(name string, shards []Collection) Collection {
	sum := Collection{
		Name: name, Shards: len(shards), Faults: []Fault{},
		Queue: Queue{Segments: []Segment{}, Census: shards[0].Queue.Census}, Index: Index{Tables: []Table{}, Merges: []Merge{}},
		ScrubEnded: shards[0].ScrubEnded, CanarySent: shards[0].CanarySent,
	}
	var notReady []readiness.Part
	written := 0.0
	for i := range shards {
		s := &shards[i]
		if !s.Ready {
			notReady = append(notReady, readiness.Part{Name: s.Name, Report: readiness.Report{State: s.State, Cause: s.Reason, Progress: s.Progress}})
		}
		sum.LagBytes += s.LagBytes
		sum.LagDocuments += s.LagDocuments
		sum.LagSeconds = max(sum.LagSeconds, s.LagSeconds)
		if s.LastAppended != nil && (sum.LastAppended == nil || s.LastAppended.After(*sum.LastAppended)) {
			sum.LastAppended = s.LastAppended
		}
		sum.CanarySent = earlier(sum.CanarySent, s.CanarySent)
		sum.VisibleAfter = max(sum.VisibleAfter, s.VisibleAfter)
		sum.Gets.Found += s.Gets.Found
		sum.Gets.NotFound += s.Gets.NotFound
		sum.Gets.Unavailable += s.Gets.Unavailable
		sum.Gets.Failed += s.Gets.Failed
		sum.Applied += s.Applied
		sum.Swept += s.Swept
		sum.Quarantined += s.Quarantined
		sum.Scrubbed += s.Scrubbed
		sum.ScrubEnded = earlier(sum.ScrubEnded, s.ScrubEnded)
		sum.Faults = append(sum.Faults, s.Faults...)
		sum.MoreFaults += s.MoreFaults
		sum.Queue.Bytes += s.Queue.Bytes
		sum.Queue.Documents += s.Queue.Documents
		sum.Queue.Deletes += s.Queue.Deletes
		sum.Queue.LiveDocuments += s.Queue.LiveDocuments
		sum.Queue.Census = earlier(sum.Queue.Census, s.Queue.Census)
		sum.Queue.Mapped = sum.Queue.Mapped.plus(s.Queue.Mapped)
		sum.Index.add(&s.Index)
		written += s.Index.Amplification * float64(s.Index.Flushes)
		sum.Manifest = sum.Manifest.plus(s.Manifest)
	}
	sum.Readiness = ReadinessOf(readiness.Combine(len(shards), notReady))
	if sum.Index.Flushes > 0 {
		sum.Index.Amplification = written / float64(sum.Index.Flushes)
	}
	return sum
}

// earlier returns the earlier of two times, nil if one of them is nil.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && a.Before(*b) {
		return a
	}
	return b
}

// add adds the counts and bytes of another index.
func (x *Index) add(other *Index) {
	x.Entries += other.Entries
	x.Merges = append(x.Merges, other.Merges...)
	x.MemtableBytes += other.MemtableBytes
	x.MemtablesWaiting += other.MemtablesWaiting
	x.LogBytes += other.LogBytes
	x.Flushes += other.Flushes
	x.MergesDone += other.MergesDone
	x.Delays += other.Delays
	x.Stalls += other.Stalls
	if x.Problem == "" {
		x.Problem = other.Problem
	}
	x.Mapped = x.Mapped.plus(other.Mapped)
	f, g := &x.Filter, &other.Filter
	f.BudgetBytes += g.BudgetBytes
	f.IndexBytes += g.IndexBytes
	f.PageBytes += g.PageBytes
	f.ResidentBytes += g.ResidentBytes
	f.Pages += g.Pages
	f.Resident += g.Resident
	f.Loaded += g.Loaded
	f.Dropped += g.Dropped
}

// plus returns the files of both. Either may be nil.
func (m *Mapped) plus(other *Mapped) *Mapped {
	switch {
	case m == nil:
		return other
	case other == nil:
		return m
	}
	bytes := m.Bytes + other.Bytes
	resident := float64(m.Bytes)*m.ResidentRatio + float64(other.Bytes)*other.ResidentRatio
	return &Mapped{Bytes: bytes, ResidentRatio: resident / float64(bytes)}
}

// plus returns the manifest that serves less, with the bytes of both. Either may be nil.
func (m *Manifest) plus(other *Manifest) *Manifest {
	switch {
	case m == nil:
		return other
	case other == nil:
		return m
	}
	behind, ahead := *m, other
	if other.Served < m.Served || other.Served == m.Served && other.Increment < m.Increment {
		behind, ahead = *other, m
	}
	behind.FetchedBytes += ahead.FetchedBytes
	behind.FetchBytes += ahead.FetchBytes
	behind.FetchRate += ahead.FetchRate
	behind.PeerBytes += ahead.PeerBytes
	behind.BucketBytes += ahead.BucketBytes
	behind.Behind = max(behind.Behind, ahead.Behind)
	behind.LastContact = earlier(behind.LastContact, ahead.LastContact)
	if behind.Error == "" {
		behind.Error = ahead.Error
	}
	return &behind
}
