package collection

import "docstore/docservice/docservicepb"

// proto returns the statistics in protobuf.
func (s Stats) proto() *docservicepb.CollectionStats {
	position := s.Status.Position
	stats := &docservicepb.CollectionStats{
		Name:  s.Name,
		Ready: s.Status.Ready,
		Position: &docservicepb.Position{
			QueueId: position.Queue[:],
			Segment: uint32(position.Next.Segment),
			Block:   position.Next.Block,
			Index:   uint32(position.Next.Index),
		},
		LagBytes:         uint64(s.Status.LagBytes()),
		LagMilliseconds:  uint64(s.Status.Lag.Milliseconds()),
		Segments:         uint64(s.Segments),
		SegmentBytes:     uint64(s.SegmentBytes),
		SegmentDocuments: uint64(s.SegmentDocuments),
		SegmentDeletes:   uint64(s.SegmentDeletes),
		EntriesApplied:   s.Status.Applied,
		GetsFound:        s.Status.Gets.Found,
		GetsNotFound:     s.Status.Gets.NotFound,
		GetsUnavailable:  s.Status.Gets.Unavailable,
		GetsFailed:       s.Status.Gets.Failed,
		FaultsNotListed:  uint64(s.Status.MoreFaults),
	}
	stats.IndexTables = uint64(len(s.Index.Tables))
	stats.IndexBytes = uint64(s.Index.LogBytes)
	for _, table := range s.Index.Tables {
		stats.IndexEntries += table.Entries
		stats.IndexBytes += table.Bytes
	}
	for _, fault := range s.Status.Faults {
		stats.Faults = append(stats.Faults, &docservicepb.Fault{
			Segment:               uint32(fault.Segment),
			Offset:                uint64(fault.Offset),
			Path:                  fault.Path,
			Reason:                fault.Reason,
			SinceUnixMilliseconds: fault.Since.UnixMilli(),
			StopsTail:             fault.StopsTail,
		})
	}
	return stats
}
