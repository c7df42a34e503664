package collection

import (
	"time"

	"docstore/docservice/readiness"
	"docstore/lsm"
	"docstore/queue"
)

// Status is the state of a collection. Getting it lists the queue's directory.
type Status struct {
	// Ready: the queue has been read to the end that its head file names, no fault has
	// stopped the tail since, and no damage is known in the index. Only then is an id
	// without an index entry answered docservice.ErrNotFound instead of
	// docservice.ErrUnavailable. A collection without any segment is not ready.
	Ready bool
	// Index is why Ready is false; its State is readiness.Ready if it is true.
	Index readiness.Index
	// Position is the end of the part of the queue that the index includes.
	Position queue.Position
	// TailedBytes of the PresentBytes of the queue's segments here are in the index: the
	// progress while a queue is first indexed.
	TailedBytes, PresentBytes int64
	// Applied counts the entries applied to the index since the collection was opened.
	Applied uint64
	// LastAppended is when the newest applied entry was appended to the queue; zero if
	// there is none.
	LastAppended time.Time
	// VisibleAfter is the time from append to index of the newest applied entry. It is 0
	// until an entry arrives after the queue was first read to its end.
	VisibleAfter time.Duration
	Freshness    Freshness
	// Canaries are the times from the event at the source until canaries of append were served
	// here. CanarySent is when the newest canary was appended; zero: there is none.
	Canaries   Freshness
	CanarySent time.Time
	// Lag is the maximum age of the entries not in the index: the time since the first that
	// could not be written was appended, or since LastAppended, or since the tail stopped if no
	// entry was applied before; 0 if no entry is waiting.
	Lag time.Duration
	// Faults are the known faults of the files, at most MaxFaults; MoreFaults is the number
	// of those left out.
	Faults     []Fault
	MoreFaults int
	// Quarantined counts the files quarantined since the collection was opened.
	Quarantined uint64
	// Swept counts the entries of expired documents removed from the index since the
	// collection was opened.
	Swept uint64
	// Scrub is the progress of the scrub of the index.
	Scrub ScrubState
	Gets  GetCounts
	// Replacement is the store that is being built to replace this one; nil if there is
	// none.
	Replacement *Replacement
}

// LagBytes returns the bytes of the queue here that are not in the index yet.
func (s Status) LagBytes() int64 { return s.PresentBytes - s.TailedBytes }

// GetCounts count the requested ids by answer since the collection was opened.
type GetCounts struct {
	Found, NotFound, Unavailable, Failed uint64
}

// Status returns the state of the collection. It works after Close, too.
func (c *Collection) Status() Status {
	quarantined := c.quarantined.Load() // first: the faults have those that are counted
	status := c.serving.Load().status()
	status.Quarantined, status.Swept = quarantined, c.swept.Load()
	status.Scrub = c.scrubState()
	status.Gets = GetCounts{
		Found:       c.gets.found.Load(),
		NotFound:    c.gets.notFound.Load(),
		Unavailable: c.gets.unavailable.Load(),
		Failed:      c.gets.failed.Load(),
	}
	status.Replacement = c.replacement()
	if next := status.Replacement; next != nil && status.Index.State == readiness.Rebuilding {
		status.Index.Read, status.Index.Bytes = next.TailedBytes, next.PresentBytes
	}
	return status
}

// status returns the part of a Status that concerns the store.
func (s *store) status() Status {
	status := Status{Ready: true, Index: readiness.Index{State: readiness.Ready}}
	if g := s.health.gap.Load(); g != nil {
		status.Ready, status.Index.State, status.Index.Cause = false, g.state, g.reason
	}
	// List the files first: a segment that arrives meanwhile then counts as read at most.
	files, err := listSegments(s.options.FS, s.queueDir)
	if err != nil {
		s.logger.Warn("listing the queue's directory failed", "dir", s.queueDir, "error", err)
	}
	tail := s.health.tailState()
	status.Faults, status.MoreFaults = s.health.listFaults()

	status.Position, status.Applied = tail.position, tail.applied
	status.LastAppended, status.VisibleAfter, status.Freshness = tail.appended, tail.visibleAfter, tail.freshness
	status.Canaries, status.CanarySent = tail.canaries, tail.canarySent
	status.TailedBytes, status.PresentBytes = bytesBefore(files, tail.position.Next)
	if tail.current {
		// The rest after the position is marks and footers.
		status.TailedBytes = status.PresentBytes
	} else if since := s.health.waitsSince(); !since.IsZero() {
		status.Lag = max(0, s.options.Now().Sub(since))
	}
	status.Index.Read, status.Index.Bytes, status.Index.Fault = status.TailedBytes, status.PresentBytes, stops(status.Faults)
	return status
}

// stops describes the fault that stops the tail; empty: none does.
func stops(faults []Fault) string {
	for _, f := range faults {
		switch {
		case f.StopsTail && f.IndexUnwritten:
			return "the index cannot be written: " + f.String()
		case f.StopsTail:
			return "reading the queue failed: " + f.String()
		}
	}
	return ""
}

// Stats is a Status with statistics of index and queue. It reads the footer of every
// segment.
type Stats struct {
	Name   string
	Status Status
	Index  lsm.Stats
	// Of all segments here, superseded versions and deletes included.
	Segments         int
	SegmentBytes     int64
	SegmentDocuments int64
	SegmentDeletes   int64
}

// Stats returns the statistics of the collection.
func (c *Collection) Stats() (Stats, error) {
	segments, err := c.Segments()
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{Name: c.name, Status: c.Status(), Index: c.IndexStats(), Segments: len(segments)}
	for _, segment := range segments {
		stats.SegmentBytes += segment.Bytes
		stats.SegmentDocuments += segment.Documents
		stats.SegmentDeletes += segment.Deletes
	}
	return stats, nil
}
