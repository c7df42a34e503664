package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/ingest"
)

// batch is a series of messages of one partition.
type batch struct {
	batch     ingest.Batch
	topic     string
	partition int32
	// The encoded cursor before and after the place in the partition.
	prefix, suffix []byte
	places         []place // of the records
	last           entry   // behind the last message
}

// place is the place of a record.
type place struct {
	offset int64 // of its message
	next   entry // behind the record: at the message again if it has another record
}

// newBatch returns an empty batch of the partition of an entry. It reuses a released one.
func (s *Source) newBatch(at int) *batch {
	var b *batch
	select {
	case b = <-s.released:
	default:
		b = &batch{topic: s.config.Topic}
		b.batch.Ends = !s.config.Follow
		b.batch.AppendCursor, b.batch.Included, b.batch.Place = b.appendCursor, b.included, b.place
		b.batch.Release = func() { s.release(b) }
	}
	b.partition, b.last = s.at.entries[at].partition, s.at.entries[at]
	b.prefix = s.at.appendPartition(s.at.appendBefore(b.prefix[:0], at), at)
	b.suffix = s.at.appendEntries(b.suffix[:0], at+1, len(s.at.entries))
	return b
}

// release keeps a batch for newBatch, but not the messages to which its records refer.
func (s *Source) release(b *batch) {
	if cap(b.places) > maxIdleRecords {
		return
	}
	clear(b.batch.Records)
	b.batch.Records, b.batch.Bytes, b.batch.Oldest, b.places = b.batch.Records[:0], 0, time.Time{}, b.places[:0]
	select {
	case s.released <- b:
	default:
	}
}

// fill adds messages until the batch is full, and returns their number.
func (b *batch) fill(s *Source, messages []*kgo.Record) (int, error) {
	var bytes int
	for n, m := range messages {
		if bytes >= batchBytes {
			return n, nil
		}
		if m.Offset < b.last.offset {
			// A fetch starts at the cursor, and offsets ascend.
			return 0, fmt.Errorf("partition %d: the broker sent offset %d after %d", b.partition, m.Offset, b.last.offset-1)
		}
		again := entry{partition: b.partition, offset: m.Offset, epoch: m.LeaderEpoch}
		if b.last.offset == m.Offset {
			again.content = b.last.content
		}
		b.last = entry{partition: b.partition, offset: m.Offset + 1, epoch: m.LeaderEpoch, content: contentOf(m)}
		if !m.Attrs.IsControl() {
			b.add(s, m, again)
			bytes += len(m.Key) + len(m.Value)
		}
		if len(b.places) > 0 {
			b.places[len(b.places)-1].next = b.last // also behind messages without record
		}
	}
	return len(messages), nil
}

// add adds the records of a message. again is the entry at it.
func (b *batch) add(s *Source, m *kgo.Record, again entry) {
	b.batch.Records = s.config.Decoder.Append(b.batch.Records, m.Key, m.Value)
	b.batch.Bytes += int64(len(m.Key) + len(m.Value))
	if b.batch.Oldest.IsZero() || m.Timestamp.Before(b.batch.Oldest) {
		b.batch.Oldest = m.Timestamp
	}
	for len(b.places) < len(b.batch.Records) {
		b.places = append(b.places, place{offset: m.Offset, next: again})
	}
}

func (b *batch) appendCursor(dst []byte, i int) []byte {
	dst = append(dst, b.prefix...)
	dst = b.places[i].next.appendPlace(dst)
	return append(dst, b.suffix...)
}

func (b *batch) included(p ingest.Position, i int) bool {
	at := p.(*position)
	found, ok := at.find(b.partition)
	return ok && at.entries[found].offset > b.places[i].offset
}

func (b *batch) place(i int) string {
	return fmt.Sprintf("topic %s, partition %d, offset %d", b.topic, b.partition, b.places[i].offset)
}
