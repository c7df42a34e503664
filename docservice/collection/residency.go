package collection

import "docstore/internal/residency"

// Residency tells how far index and segments are in memory.
type Residency struct {
	Index, Segments PartResidency
}

// PartResidency is the Residency of the index or the segments.
type PartResidency struct {
	// MappedBytes is the size of the mapped files, 0 if Share is unknown: no file is mapped,
	// or the system is not Linux. Segments are mapped when a document is first read from
	// them.
	MappedBytes int64
	// Share of the mapped files that is in memory, from a sample of 1,024 pages. If the
	// process may not write the files, Linux hides which pages are in memory, and Share is 1.
	Share float64
}

// Residency returns the residency of the store that answers. It takes about a millisecond.
func (c *Collection) Residency() (of Residency) {
	r := c.serving.Load().reader
	of.Index.Share, of.Index.MappedBytes = r.index.Resident()
	of.Segments.Share, of.Segments.MappedBytes = r.queue.Resident()
	return of
}

// ColdReads is a histogram of durations.
type ColdReads = residency.Latencies

// ColdReads returns the durations of the lookups in the index and the reads of segments that
// waited for the disk, in the store that answers. A batch counts once. The first two after a
// time without waiting are not included. ok is false on other systems than Linux, which are
// not measured.
func (c *Collection) ColdReads() (index, segments ColdReads, ok bool) {
	r := c.serving.Load().reader
	return r.indexReads.ColdReads(), r.segmentReads.ColdReads(), residency.Supported
}
