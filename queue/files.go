package queue

import (
	"docstore/queue/internal/segment"
)

// FileName is the information in the name of a segment's or rewrite's file: First and Last
// are the numbers of its segments, equal for an original; Generation is that of a rewrite, 0 for
// an original; Sealed is false for the segment that is being written.
type FileName = segment.FileName

// ParseFileName parses the base name of a segment's or rewrite's file. False: it is
// neither.
func ParseFileName(name string) (FileName, bool) { return segment.ParseFileName(name) }

// OpenSegmentName returns the name of the file of a segment that is being written.
func OpenSegmentName(n SegmentID) string { return segment.Path("", n, segment.OpenSuffix) }

// QuarantineSuffix ends the name of a segment's file that the server of a copy has
// quarantined because of damage, so that it is copied again. Such a file is not part of
// the queue, but its undamaged documents are served until the new copy arrives.
const QuarantineSuffix = segment.QuarantineSuffix
