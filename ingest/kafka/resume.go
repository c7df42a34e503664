package kafka

import (
	"fmt"
)

// topic is the state of a topic in its cluster.
type topic struct {
	id      [16]byte
	cluster string
	epochs  []int32 // the current leader epoch of each partition; -1: unknown
	leaders []int32 // the broker of each partition
}

// ends is the state of the log of a partition.
type ends struct {
	start  int64 // the first offset
	stable int64 // behind the last message of a completed transaction
	end    int64 // behind the last message
	// epochEnd is the end of the messages up to the leader epoch of the cursor; -1: unknown.
	epochEnd int64
}

// identify checks that the topic is the one of a position.
func (p *position) identify(t *topic) error {
	switch {
	case p.cluster != t.cluster:
		return fmt.Errorf("the cursor is of the cluster with id %q, and this cluster has id %q: its offsets are others; "+
			"use --resume=false to append the topic from its start", p.cluster, t.cluster)
	case p.topicID != t.id && p.topicID != [16]byte{} && t.id != [16]byte{}:
		return fmt.Errorf("topic %s was deleted and created again (id %x, before %x): its offsets are others; "+
			"use --resume=false to append the topic from its start", p.topic, t.id, p.topicID)
	case int(p.partitions) > len(t.epochs):
		return fmt.Errorf("topic %s has %d partitions and had %d: it was deleted and created again; "+
			"use --resume=false to append the topic from its start", p.topic, len(t.epochs), p.partitions)
	}
	return nil
}

// checkEntry checks that reading a partition at an entry leaves out nothing.
func checkEntry(e entry, log ends) error {
	switch {
	case e.offset < log.start:
		return lost(e.partition, fmt.Sprintf("the messages at offsets %d to %d were deleted before they were read", e.offset, log.start-1))
	case log.epochEnd >= 0 && log.epochEnd < e.offset:
		return lost(e.partition, fmt.Sprintf("the messages at offsets %d to %d were read and then lost or replaced "+
			"when another replica became leader", log.epochEnd, e.offset-1))
	case e.offset > log.end:
		return lost(e.partition, fmt.Sprintf("the messages at offsets %d to %d were read, and the log ends before them", log.end, e.offset-1))
	}
	return nil
}

func lost(partition int32, what string) error {
	return fmt.Errorf("partition %d: %s; the queue may differ from the topic: "+
		"use --resume=false to append the topic from its start, preferably to a new queue", partition, what)
}

// begin returns the entry at which to read a partition that a position lacks. Messages of a
// partition that was added after the position must all be there.
func begin(partition int32, after *position, log ends) (entry, error) {
	e := entry{partition: partition, offset: log.start, epoch: -1}
	if after != nil && partition >= after.partitions && log.start > 0 {
		e.offset = 0
		return e, checkEntry(e, log)
	}
	return e, nil
}
