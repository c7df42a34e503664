package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"docstore/ingest/internal/cursors"
)

// position is a position in a topic: a decoded cursor.
type position struct {
	topicID [16]byte // 0: the broker has no topic ids
	cluster string   // at most maxClusterBytes
	topic   string
	// partitions is the number of partitions that the topic had. Those added later are
	// read from their first message.
	partitions int32
	entries    []entry // by partition
}

// entry is the position in a partition.
type entry struct {
	partition int32
	offset    int64 // of the next message
	epoch     int32 // leader epoch of the message before it; -1: unknown
	// content is the checksum of the message at offset-1; 0: unknown.
	content uint16
}

const (
	// offsetLimit and epochLimit are above what a topic reaches, so that the largest cursor fits.
	offsetLimit = 1 << 56
	epochLimit  = 1 << 28
)

// find returns the index of a partition's entry, or where to insert it.
func (p *position) find(partition int32) (int, bool) {
	return slices.BinarySearchFunc(p.entries, partition, func(e entry, partition int32) int { return int(e.partition - partition) })
}

// set inserts or replaces an entry.
func (p *position) set(e entry) {
	i, found := p.find(e.partition)
	if !found {
		p.entries = slices.Insert(p.entries, i, e)
		return
	}
	p.entries[i] = e
}

// clone returns a copy.
func (p *position) clone() *position {
	c := *p
	c.entries = slices.Clone(p.entries)
	return &c
}

// String describes the position for messages.
func (p *position) String() string {
	var messages int64
	for _, e := range p.entries {
		messages += e.offset
	}
	return fmt.Sprintf("topic %s, offsets of %d partitions that add up to %d", p.topic, len(p.entries), messages)
}

// encode returns the cursor.
func (p *position) encode() []byte { return p.appendBefore(nil, len(p.entries)) }

// appendBefore appends the header and the entries before an index.
func (p *position) appendBefore(dst []byte, end int) []byte {
	dst = append(cursorKind.Append(dst), p.topicID[:]...)
	dst = append(append(dst, byte(len(p.cluster))), p.cluster...)
	dst = append(append(dst, byte(len(p.topic))), p.topic...)
	dst = binary.AppendUvarint(dst, uint64(p.partitions))
	dst = binary.AppendUvarint(dst, uint64(len(p.entries)))
	return p.appendEntries(dst, 0, end)
}

func (p *position) appendEntries(dst []byte, start, end int) []byte {
	for i := start; i < end; i++ {
		dst = p.appendPartition(dst, i)
		dst = p.entries[i].appendPlace(dst)
	}
	return dst
}

// appendPartition appends the partition of an entry, relative to the previous one.
func (p *position) appendPartition(dst []byte, i int) []byte {
	previous := int32(-1)
	if i > 0 {
		previous = p.entries[i-1].partition
	}
	return binary.AppendUvarint(dst, uint64(p.entries[i].partition-previous-1))
}

// appendPlace appends the place within the partition.
func (e *entry) appendPlace(dst []byte) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(e.offset)), uint64(e.epoch+1))
	return binary.LittleEndian.AppendUint16(dst, e.content)
}

var cursorKind = cursors.Kind{
	Magic: "DSKA", Version: 1, Name: "Kafka",
	Foreign: errors.New("the queue's cursor is not one of Kafka; use --resume=false to append the topic from its start"),
	Damaged: errors.New("the queue's cursor of Kafka is damaged; use --resume=false to append the topic from its start"),
}

// parsePosition decodes the result of encode.
func parsePosition(stored []byte) (*position, error) {
	version, d, err := cursorKind.Open(stored)
	if err != nil {
		return nil, err
	}
	p := &position{}
	copy(p.topicID[:], d.Take(len(p.topicID)))
	p.cluster = string(d.Take(d.Byte(maxClusterBytes)))
	p.topic = string(d.Take(d.Byte(maxTopicBytes)))
	p.partitions = int32(d.Uvarint(math.MaxInt32))
	n := d.Uvarint(MaxPartitions)
	next := int32(0)
	for range n {
		e := entry{partition: next + int32(d.Uvarint(PartitionLimit-1-uint64(next)))}
		e.offset = int64(d.Uvarint(offsetLimit - 1))
		e.epoch = int32(d.Uvarint(epochLimit-1)) - 1
		if version > 0 {
			e.content = d.Uint16()
		}
		if next = e.partition + 1; next >= PartitionLimit {
			next = PartitionLimit - 1 // another entry is invalid, see below
		}
		if len(p.entries) > 0 && e.partition <= p.entries[len(p.entries)-1].partition {
			d.Fail()
		}
		p.entries = append(p.entries, e)
	}
	if p.topic == "" {
		d.Fail()
	}
	return p, d.End()
}

// sameTopic returns an error if two positions are of different topics.
func (p *position) sameTopic(q *position) error {
	if p.topicID != q.topicID || p.cluster != q.cluster || p.topic != q.topic {
		return fmt.Errorf("the shards' cursors are of different topics: %s of cluster %s and %s of cluster %s",
			q.topic, q.cluster, p.topic, p.cluster)
	}
	return nil
}

// add makes the position one behind all messages that p and q are behind. within: p was one.
func (p *position) add(q *position) (within bool, err error) {
	if err := q.sameTopic(p); err != nil {
		return false, err
	}
	within = true
	for _, e := range q.entries {
		if i, found := p.find(e.partition); !found || p.entries[i].offset < e.offset {
			p.set(e)
			within = false
		}
	}
	p.partitions = max(p.partitions, q.partitions)
	return within, nil
}

// earliest returns a position that is at or before each of the positions: in each partition
// the smallest offset. A partition that one of them has not reached is missing.
func earliest(positions []*position) (*position, error) {
	first := positions[0].clone()
	for _, p := range positions[1:] {
		if err := p.sameTopic(first); err != nil {
			return nil, err
		}
		first.partitions = min(first.partitions, p.partitions)
		first.entries = slices.DeleteFunc(first.entries, func(e entry) bool {
			_, found := p.find(e.partition)
			return !found
		})
		for i := range first.entries {
			at, _ := p.find(first.entries[i].partition)
			if e := p.entries[at]; e.offset < first.entries[i].offset {
				first.entries[i] = e
			}
		}
	}
	return first, nil
}

// Describe describes a stored cursor. The error says that it is none of Kafka.
func Describe(stored []byte) (string, error) {
	p, err := parsePosition(stored)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
