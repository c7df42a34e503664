package docservice

import (
	"time"

	"docstore/lsm"
	"docstore/queue"
)

// Status is how a collection is doing now. Asking costs a listing of the
// queue's directory.
type Status struct {
	// Ready: the queue has been read to the end that its head file names, no fault has
	// stopped reading it since, and no damage is known in the index. Only then is an id that
	// the index lacks answered ErrNotFound, and not ErrUnavailable. Where no segment
	// has arrived yet there is no such end.
	Ready bool
	// NotReady is why Ready is false.
	NotReady string
	// Position is up to where the queue is in the index.
	Position queue.Position
	// TailedBytes of the PresentBytes of the queue's segments here are in the
	// index: the progress while a queue is first indexed.
	TailedBytes, PresentBytes int64
	// Applied counts the entries put into the index since the collection was
	// opened.
	Applied uint64
	// LastAppended is when the newest of them was appended to the queue; the
	// zero time if there is none.
	LastAppended time.Time
	// VisibleAfter is how long the newest of them took from there into the index. It is 0
	// until one has arrived after the queue was first read to its end.
	VisibleAfter time.Duration
	// Lag is how old what the index does not hold yet may be: the time since
	// LastAppended, or 0 if nothing is waiting in the queue.
	Lag time.Duration
	// Faults are what is wrong with the files here, at most MaxFaults of them,
	// and MoreFaults how many more there are.
	Faults     []Fault
	MoreFaults int
	// Quarantined counts the damaged files set aside since the collection was
	// opened.
	Quarantined uint64
	// Swept counts the entries of expired documents taken out of the index since
	// the collection was opened.
	Swept uint64
	// Scrub is of the index.
	Scrub ScrubState
	Gets  GetCounts
	// Successor is another queue that has come in the place of this one and is
	// being indexed; nil if there is none.
	Successor *Successor
}

// LagBytes is what of the queue's bytes here is not in the index yet.
func (s Status) LagBytes() int64 { return s.PresentBytes - s.TailedBytes }

// GetCounts count the ids that were asked for, by answer, since the collection
// was opened.
type GetCounts struct {
	Found, NotFound, Unavailable, Failed uint64
}

// Status tells how the collection is doing. It works after Close, too.
func (c *Collection) Status() Status {
	status := c.serving.Load().status()
	status.Quarantined, status.Swept = c.quarantined.Load(), c.swept.Load()
	status.Scrub = c.scrubState()
	status.Gets = GetCounts{
		Found:       c.gets.found.Load(),
		NotFound:    c.gets.notFound.Load(),
		Unavailable: c.gets.unavailable.Load(),
		Failed:      c.gets.failed.Load(),
	}
	status.Successor = c.successor()
	return status
}

// status is what of a Status is the store's.
func (s *store) status() Status {
	status := Status{Ready: true}
	if g := s.gap.Load(); g != nil {
		status.Ready, status.NotReady = false, g.reason
	}
	// The listing first: what arrives meanwhile is at most counted as read.
	files, err := listSegments(s.options.FS, s.queueDir)
	if err != nil {
		s.logger.Warn("the queue's directory cannot be listed", "dir", s.queueDir, "error", err)
	}
	s.mu.Lock()
	tail := s.mu.tail
	status.Faults, status.MoreFaults = s.mu.faults.list()
	s.mu.Unlock()

	status.Position, status.Applied = tail.position, tail.applied
	status.LastAppended, status.VisibleAfter = tail.appended, tail.visibleAfter
	status.TailedBytes, status.PresentBytes = bytesBefore(files, tail.position.Next)
	if tail.current {
		// What lies behind the position is marks and footers.
		status.TailedBytes = status.PresentBytes
	} else if !tail.appended.IsZero() {
		status.Lag = max(0, s.options.Now().Sub(tail.appended))
	}
	return status
}

// Stats is a Status with what index and queue say of themselves. It costs more:
// every segment's footer is looked at.
type Stats struct {
	Name   string
	Status Status
	Index  lsm.Stats
	// Of all segments here, with superseded versions and deletes.
	Segments         int
	SegmentBytes     int64
	SegmentDocuments int64
	SegmentDeletes   int64
}

// Stats describes the collection.
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
