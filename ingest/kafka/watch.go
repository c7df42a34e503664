package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/internal/ctxtime"
)

// watch measures the lag and detects new partitions and a topic that was created again, until
// the source is closed or fails.
func (s *Source) watch(opened *topic, interval time.Duration) {
	missing := 0
	for ctxtime.Sleep(s.failed, interval) {
		err := s.look(opened)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			// A broker that has just started may not know the topic yet.
			if missing++; missing >= missingTopicChecks {
				s.fail(fetchError(-1, err))
			}
			continue
		}
		missing = 0
		var final finalError
		if errors.As(err, &final) {
			s.fail(final.error)
		}
	}
}

// finalError is an error after which reading must not continue. After other errors of the
// watcher it looks again.
type finalError struct{ error }

func (s *Source) look(opened *topic) error {
	ctx, cancel := context.WithTimeout(s.failed, openTimeout)
	defer cancel()
	now, err := describe(ctx, s.client, s.config.Topic)
	if err != nil {
		return err
	}
	s.mu.Lock()
	known := position{topicID: opened.id, cluster: opened.cluster, topic: s.config.Topic, partitions: s.mu.total}
	s.mu.Unlock()
	if err := known.identify(now); err != nil {
		return finalError{err}
	}
	if len(now.epochs) > int(known.partitions) && s.config.Partitions == nil && s.config.Follow {
		if err := s.grow(ctx, now, &known); err != nil {
			return err
		}
	}
	s.mu.Lock()
	partitions := make([]int32, 0, len(s.mu.offsets))
	for p := range s.mu.offsets {
		partitions = append(partitions, p)
	}
	s.mu.Unlock()
	slices.Sort(partitions)
	stable, err := listOffsets(ctx, s.client, s.config.Topic, partitions, latest, true)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stable = stable
	return nil
}

// grow starts to read the partitions that were added to the topic.
func (s *Source) grow(ctx context.Context, now *topic, known *position) error {
	partitions, err := s.config.assigned(len(now.epochs))
	if err != nil {
		return finalError{err}
	}
	partitions = partitions[known.partitions:]
	logs, err := logEnds(ctx, s.client, now, s.config.Topic, partitions, nil)
	if err != nil {
		return err
	}
	var added []entry
	offsets := make(map[int32]kgo.Offset)
	for _, p := range partitions {
		e, err := begin(p, known, logs[p])
		if err != nil {
			return finalError{fmt.Errorf("new %w", err)}
		}
		added = append(added, e)
		offsets[p] = kgo.NewOffset().At(e.offset)
	}
	s.mu.Lock()
	s.mu.total, s.mu.added = int32(len(now.epochs)), append(s.mu.added, added...)
	for _, e := range added {
		s.mu.offsets[e.partition] = e.offset
	}
	s.mu.Unlock()
	// Next must know the partitions before it receives their messages.
	s.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.config.Topic: offsets})
	return nil
}
