package docservice

import "docstore/internal/residency"

// Residency tells how far index and segments are in memory.
type Residency struct {
	Index, Segments PartResidency
}

// PartResidency is the Residency of the index or the segments.
type PartResidency struct {
	// Share of the mapped files that is in memory, from a sample of 1,024 pages. Segments
	// are mapped when a document is first read from them. Known is false if no file is
	// mapped, and on other systems than Linux. If the process may not write the files,
	// Linux hides which pages are in memory, and Share is 1.
	Share float64
	Known bool
	// ColdReads are the durations of the lookups and reads that waited for the disk. A batch
	// counts once. The first two after a time without waiting are not included.
	ColdReads ColdReads
}

// ColdReads is a histogram of durations.
type ColdReads = residency.Latencies

// Residency returns the residency of the store that answers. It takes about a millisecond.
func (c *Collection) Residency() (of Residency) {
	r := c.serving.Load().reader
	of.Index.Share, of.Index.Known = r.index.Resident()
	of.Segments.Share, of.Segments.Known = r.queue.Resident()
	of.Index.ColdReads, of.Segments.ColdReads = r.indexReads.ColdReads(), r.segmentReads.ColdReads()
	return of
}
