package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"docstore/internal/ctxtime"
)

// retry calls f until it succeeds, fails for good, or ctx ends.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !isTransient(err) {
			return err
		}
		if !ctxtime.Sleep(ctx, retryInterval) {
			return fmt.Errorf("%w (gave up: %w)", err, context.Cause(ctx))
		}
	}
}

// transientError is the error of a state that ends by itself.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// isTransient reports whether an error may disappear: elections, restarts of brokers.
func isTransient(err error) bool {
	var transient transientError
	return errors.As(err, &transient) || kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition)
}

// describe returns the state of a topic. A topic that does not exist is
// kerr.UnknownTopicOrPartition.
func describe(ctx context.Context, client *kgo.Client, name string) (*topic, error) {
	request := kmsg.NewPtrMetadataRequest()
	requested := kmsg.NewMetadataRequestTopic()
	requested.Topic = kmsg.StringPtr(name)
	request.Topics = append(request.Topics, requested)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(response.Topics) != 1 {
		return nil, fmt.Errorf("the broker described %d topics instead of 1", len(response.Topics))
	}
	described := &response.Topics[0]
	if err := kerr.ErrorForCode(described.ErrorCode); err != nil {
		return nil, err
	}
	t := &topic{id: described.TopicID}
	if response.ClusterID != nil {
		t.cluster = (*response.ClusterID)[:min(len(*response.ClusterID), maxClusterBytes)]
	}
	n := len(described.Partitions)
	t.epochs, t.leaders = make([]int32, n), make([]int32, n)
	for _, p := range described.Partitions {
		if p.Partition < 0 || int(p.Partition) >= n {
			return nil, fmt.Errorf("the broker described partition %d of %d", p.Partition, n)
		}
		// A partition without leader is read when it has one.
		t.epochs[p.Partition], t.leaders[p.Partition] = p.LeaderEpoch, p.Leader
	}
	return t, nil
}

// The times of ListOffsets.
const (
	latest = -1
	oldest = -2
)

// listOffsets returns the first or last offset of partitions; committed: the last one that
// is read.
func listOffsets(ctx context.Context, client *kgo.Client, name string, partitions []int32, at int64, committed bool) (map[int32]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	if committed {
		request.IsolationLevel = 1
	}
	requested := kmsg.NewListOffsetsRequestTopic()
	requested.Topic = name
	for _, p := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, at
		requested.Partitions = append(requested.Partitions, partition)
	}
	request.Topics = append(request.Topics, requested)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64, len(partitions))
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			offsets[p.Partition] = p.Offset
		}
	}
	return offsets, missing(partitions, offsets)
}

// epochEnds returns the ends of the messages up to the leader epochs of entries; -1 where
// the leader does not know it.
func epochEnds(ctx context.Context, client *kgo.Client, t *topic, name string, entries []entry) (map[int32]int64, error) {
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.ReplicaID = -1
	requested := kmsg.NewOffsetForLeaderEpochRequestTopic()
	requested.Topic = name
	var partitions []int32
	for _, e := range entries {
		if e.epoch < 0 {
			continue
		}
		if current := t.epochs[e.partition]; current >= 0 && current < e.epoch {
			return nil, transientError{fmt.Errorf("partition %d has leader epoch %d, before %d of the cursor; "+
				"if this remains, the topic was deleted and created again", e.partition, current, e.epoch)}
		}
		partition := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		partition.Partition, partition.LeaderEpoch, partition.CurrentLeaderEpoch = e.partition, e.epoch, t.epochs[e.partition]
		requested.Partitions = append(requested.Partitions, partition)
		partitions = append(partitions, e.partition)
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	request.Topics = append(request.Topics, requested)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64, len(partitions))
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			offsets[p.Partition] = p.EndOffset
		}
	}
	return offsets, missing(partitions, offsets)
}

// missing reports a partition that the brokers did not answer for.
func missing(partitions []int32, answers map[int32]int64) error {
	for _, p := range partitions {
		if _, ok := answers[p]; !ok {
			return transientError{fmt.Errorf("partition %d: no broker answered for it", p)}
		}
	}
	return nil
}

// logEnds returns the state of the logs of partitions.
func logEnds(ctx context.Context, client *kgo.Client, t *topic, name string, partitions []int32, at *position) (map[int32]ends, error) {
	var entries []entry
	if at != nil {
		for _, p := range partitions {
			if i, found := at.find(p); found {
				entries = append(entries, at.entries[i])
			}
		}
	}
	epochs, err := epochEnds(ctx, client, t, name, entries)
	if err != nil {
		return nil, err
	}
	starts, err := listOffsets(ctx, client, name, partitions, oldest, false)
	if err != nil {
		return nil, err
	}
	stable, err := listOffsets(ctx, client, name, partitions, latest, true)
	if err != nil {
		return nil, err
	}
	last, err := listOffsets(ctx, client, name, partitions, latest, false)
	if err != nil {
		return nil, err
	}
	logs := make(map[int32]ends, len(partitions))
	for _, p := range partitions {
		log := ends{start: starts[p], stable: stable[p], end: last[p], epochEnd: -1}
		if end, ok := epochs[p]; ok {
			log.epochEnd = end
		}
		logs[p] = log
	}
	return logs, nil
}
