package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/internal/checksum"
)

// Brokers that were restored from an older copy have the ids of the cluster and the topic, and
// possibly the leader epochs, and their logs grow past the cursor. So an entry also has a checksum of
// the message before it. Reading begins at that message, which is compared. It is not compared if it
// was deleted or compacted away, or if nothing follows it.

// contentOf returns a checksum of a message, never 0.
func contentOf(m *kgo.Record) uint16 {
	var stored [8]byte
	binary.LittleEndian.PutUint64(stored[:], uint64(m.Timestamp.UnixMilli()))
	crc := checksum.Of(stored[:], m.Key, m.Value)
	return max(uint16(crc>>16)^uint16(crc), 1)
}

// compare compares messages of a partition with the entries that are behind them, and returns the
// messages at and behind an offset.
func (s *Source) compare(partition int32, messages []*kgo.Record, offset int64) ([]*kgo.Record, error) {
	known := s.known[partition]
	if len(known) == 0 {
		return messages, nil
	}
	for _, m := range messages {
		for _, e := range known {
			if e.offset-1 == m.Offset && e.content != contentOf(m) {
				return nil, lost(partition, fmt.Sprintf("the message that was read at offset %d is now another one, of %s: "+
					"an older copy of the log was restored, which lacks messages", m.Offset, m.Timestamp.UTC().Format(time.RFC3339Nano)))
			}
		}
		s.known[partition] = slices.DeleteFunc(known, func(e entry) bool { return e.offset <= m.Offset+1 })
		known = s.known[partition]
	}
	if len(messages) > 0 && messages[0].Offset == offset-1 {
		messages = messages[1:]
	}
	return messages, nil
}

// knownEntries returns the entries of positions that can be compared, by partition.
func knownEntries(positions ...*position) map[int32][]entry {
	known := make(map[int32][]entry)
	for _, p := range positions {
		if p == nil {
			continue
		}
		for _, e := range p.entries {
			if e.content != 0 && !slices.Contains(known[e.partition], e) {
				known[e.partition] = append(known[e.partition], e)
			}
		}
	}
	return known
}

// startOffset returns where to start reading a partition whose log has a first offset: at the message
// before the entry if it is to be compared and exists.
func (e *entry) startOffset(first int64) int64 {
	if e.content != 0 && e.offset > first {
		return e.offset - 1
	}
	return e.offset
}
