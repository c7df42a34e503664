package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/ingest"
)

// Source reads a topic. It implements ingest.Source.
type Source struct {
	config *Config
	client *kgo.Client
	at     *position       // behind the last batch
	until  map[int32]int64 // where the source ends; nil: never
	ready  []*ingest.Batch // not returned yet
	// known are entries whose messages are compared when they come, by partition.
	known map[int32][]entry
	// released are batches that were used.
	released chan *batch

	watching sync.WaitGroup
	// failed ends with the error that the watcher found.
	failed context.Context
	fail   context.CancelCauseFunc

	mu struct {
		sync.Mutex
		offsets map[int32]int64 // behind the batches returned
		stable  map[int32]int64 // the ends of the partitions
		added   []entry         // partitions that the watcher has added, for Next
		total   int32           // partitions of the topic
	}
}

var _ ingest.Source = (*Source)(nil)

func newSource(config *Config, client *kgo.Client, s *start, interval time.Duration) *Source {
	src := &Source{config: config, client: client, at: s.at, known: knownEntries(s.at, s.ahead), released: make(chan *batch, maxIdleBatches)}
	src.failed, src.fail = context.WithCancelCause(context.Background())
	src.mu.stable, src.mu.offsets, src.mu.total = s.stable, make(map[int32]int64), s.at.partitions
	if !config.Follow {
		src.until = make(map[int32]int64)
	}
	for _, p := range s.partitions {
		i, _ := s.at.find(p)
		src.mu.offsets[p] = s.at.entries[i].offset
		if src.until != nil {
			src.until[p] = s.stable[p]
		}
	}
	src.watching.Go(func() { src.watch(s.topic, interval) })
	return src
}

// Next returns the next records.
func (s *Source) Next(ctx context.Context) (*ingest.Batch, error) {
	for len(s.ready) == 0 {
		if s.ended() {
			return nil, io.EOF
		}
		if err := s.poll(ctx); err != nil {
			return nil, err
		}
	}
	b := s.ready[0]
	s.ready[0], s.ready = nil, s.ready[1:]
	return b, nil
}

// ended reports whether all partitions have been read to the end. Partitions that were
// completed are removed.
func (s *Source) ended() bool {
	if s.until == nil {
		return false
	}
	for p, end := range s.until {
		i, _ := s.at.find(p)
		if s.at.entries[i].offset < end {
			return false
		}
		delete(s.until, p)
	}
	return true
}

// poll waits for a fetch and makes batches of it.
func (s *Source) poll(ctx context.Context) error {
	polling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.failed, cancel)()
	fetches := s.client.PollFetches(polling)
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.failed.Err() != nil {
		return s.failure(context.Cause(s.failed))
	}
	s.takeAdded()
	// The error of a truncated log can follow the messages that replaced those lost.
	if errs := fetches.Errors(); len(errs) > 0 {
		return s.failure(fetchError(errs[0].Partition, errs[0].Err))
	}
	for _, fetch := range fetches {
		for i := range fetch.Topics {
			for j := range fetch.Topics[i].Partitions {
				fetched := &fetch.Topics[i].Partitions[j]
				if err := s.take(fetched); err != nil {
					return s.failure(err)
				}
			}
		}
	}
	return nil
}

func (s *Source) failure(err error) error {
	return fmt.Errorf("kafka: reading topic %s: %w", s.config.Topic, err)
}

// takeAdded adds the partitions that the watcher has found to the cursor.
func (s *Source) takeAdded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.mu.added {
		s.at.set(e)
	}
	s.mu.added = nil
	s.at.partitions = s.mu.total
}

// take makes batches of the messages of one partition.
func (s *Source) take(fetched *kgo.FetchPartition) error {
	at, found := s.at.find(fetched.Partition)
	if !found {
		return nil
	}
	messages, err := s.compare(fetched.Partition, fetched.Records, s.at.entries[at].offset)
	if err != nil {
		return err
	}
	for len(messages) > 0 {
		b := s.newBatch(at)
		n, err := b.fill(s, messages)
		if err != nil {
			return err
		}
		messages = messages[n:]
		if last := b.last; last.offset > s.at.entries[at].offset {
			s.at.entries[at] = last
		}
		if len(b.batch.Records) > 0 {
			s.ready = append(s.ready, &b.batch)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.offsets[fetched.Partition] = s.at.entries[at].offset
	if fetched.LastStableOffset > 0 {
		s.mu.stable[fetched.Partition] = fetched.LastStableOffset
	}
	return nil
}

// Durable does nothing: Kafka discards messages by its own rules.
func (s *Source) Durable([]byte) {}

// Lag returns the number of messages behind those read.
func (s *Source) Lag() (n int64, unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, offset := range s.mu.offsets {
		n += max(0, s.mu.stable[p]-offset)
	}
	return n, "messages"
}

// Close disconnects.
func (s *Source) Close() error {
	s.fail(errors.New("closed"))
	s.watching.Wait()
	s.client.Close()
	return nil
}

// fetchError explains the error that ended reading a partition.
func fetchError(partition int32, err error) error {
	var dataLoss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &dataLoss):
		return lost(partition, fmt.Sprintf("the messages at offsets %d to %d were read and then lost or replaced when another replica became leader",
			dataLoss.ResetTo, dataLoss.ConsumedTo-1))
	case errors.Is(err, kerr.OffsetOutOfRange):
		return lost(partition, "the next message was deleted before it was read, or the log ends before it")
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		return errors.New("the topic was deleted; if it was created again, use --resume=false to append it from its start")
	}
	if partition < 0 {
		return err
	}
	return fmt.Errorf("partition %d: %w", partition, err)
}
