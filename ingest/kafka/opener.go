package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/ingest"
)

// Opener opens a topic. It implements ingest.Opener.
type Opener struct {
	config        Config
	watchInterval time.Duration // tests shorten it
	// latest is behind all positions that Earliest compared, for Open.
	latest atomic.Pointer[position]
}

var _ ingest.Opener = (*Opener)(nil)

// NewOpener checks the configuration. It does not connect.
func NewOpener(config Config) (*Opener, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return &Opener{config: config, watchInterval: watchInterval}, nil
}

// Ends implements ingest.Opener.
func (o *Opener) Ends() bool { return !o.config.Follow }

// Position decodes a cursor.
func (o *Opener) Position(cursor []byte) (ingest.Position, error) {
	p, err := parsePosition(cursor)
	if err != nil {
		return nil, err
	}
	if p.topic != o.config.Topic {
		return nil, fmt.Errorf("the queue's cursor is of topic %s, not of %s; use --resume=false to append %[2]s from its start",
			p.topic, o.config.Topic)
	}
	return p, nil
}

// Earliest returns a cursor at or before each of the cursors; empty: the start. After the next Open
// the messages before the others are compared, too.
func (o *Opener) Earliest(cursors [][]byte) ([]byte, error) {
	var positions []*position
	for _, cursor := range cursors {
		if len(cursor) == 0 {
			continue
		}
		p, err := o.Position(cursor)
		if err != nil {
			return nil, err
		}
		positions = append(positions, p.(*position))
	}
	if len(positions) == 0 {
		return nil, nil
	}
	last := positions[0].clone()
	for _, p := range positions[1:] {
		if _, err := last.add(p); err != nil {
			return nil, err
		}
	}
	o.latest.Store(last)
	if len(positions) < len(cursors) {
		return nil, nil
	}
	first, err := earliest(positions)
	if err != nil {
		return nil, err
	}
	return first.encode(), nil
}

// Combine implements ingest.Interleaved: the partitions are sequences.
func (o *Opener) Combine(a, b []byte) (cursor []byte, within bool, err error) {
	switch {
	case len(b) == 0:
		return a, true, nil
	case len(a) == 0:
		return b, false, nil
	}
	p, err := parsePosition(a)
	if err != nil {
		return nil, false, err
	}
	q, err := parsePosition(b)
	if err != nil {
		return nil, false, err
	}
	if within, err = p.add(q); err != nil {
		return nil, false, err
	}
	return p.encode(), within, nil
}

// Open connects to the cluster and starts reading behind a cursor.
func (o *Opener) Open(ctx context.Context, cursor []byte) (ingest.Source, error) {
	var after *position
	if len(cursor) > 0 {
		p, err := o.Position(cursor)
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		after = p.(*position)
	}
	src, err := o.open(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("kafka: opening topic %s of %v: %w", o.config.Topic, o.config.Brokers, err)
	}
	return src, nil
}

// start is how reading starts.
type start struct {
	topic      *topic
	at         *position
	ahead      *position       // behind the messages that some shards have; nil: at
	partitions []int32         // that are read
	first      map[int32]int64 // of the logs
	stable     map[int32]int64
}

func (o *Opener) open(ctx context.Context, after *position) (*Source, error) {
	client, err := kgo.NewClient(append(o.config.clientOptions(), kgo.RequestRetries(openRetries))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	limited, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("%v have passed", openTimeout))
	defer cancel()
	var begin *start
	ahead := o.latest.Swap(nil)
	if err := retry(limited, func() error {
		if begin, err = o.start(limited, client, after); err == nil {
			begin.ahead = ahead
		}
		return err
	}); err != nil {
		return nil, err
	}
	consumer, err := kgo.NewClient(o.config.consumerOptions(begin)...)
	if err != nil {
		return nil, err
	}
	return newSource(&o.config, consumer, begin, o.watchInterval), nil
}

// start finds where to start, and checks that nothing was lost before that.
func (o *Opener) start(ctx context.Context, client *kgo.Client, after *position) (*start, error) {
	t, err := describe(ctx, client, o.config.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, errors.New("the topic does not exist")
	}
	if err != nil {
		return nil, err
	}
	s := &start{
		topic:  t,
		at:     &position{topicID: t.id, cluster: t.cluster, topic: o.config.Topic, partitions: int32(len(t.epochs))},
		stable: make(map[int32]int64),
		first:  make(map[int32]int64),
	}
	if after != nil {
		if err := after.identify(t); err != nil {
			return nil, err
		}
		s.at.entries = slices.Clone(after.entries)
	}
	if s.partitions, err = o.config.assigned(len(t.epochs)); err != nil {
		return nil, err
	}
	logs, err := logEnds(ctx, client, t, o.config.Topic, s.partitions, after)
	if err != nil {
		return nil, err
	}
	for _, p := range s.partitions {
		if i, found := s.at.find(p); found {
			err = checkEntry(s.at.entries[i], logs[p])
		} else {
			var e entry
			e, err = begin(p, after, logs[p])
			s.at.set(e)
		}
		if err != nil {
			return nil, err
		}
		s.stable[p], s.first[p] = logs[p].stable, logs[p].start
	}
	if len(s.at.entries) > MaxPartitions {
		return nil, fmt.Errorf("the cursor would have %d partitions, and at most %d are allowed; use --resume=false to drop those of earlier runs",
			len(s.at.entries), MaxPartitions)
	}
	return s, nil
}

// assigned returns the partitions to read of a topic.
func (c *Config) assigned(partitions int) ([]int32, error) {
	if c.Partitions == nil {
		if partitions > MaxPartitions {
			return nil, fmt.Errorf("the topic has %d partitions, and at most %d are read; select some with partitions=", partitions, MaxPartitions)
		}
		all := make([]int32, partitions)
		for i := range all {
			all[i] = int32(i)
		}
		return all, nil
	}
	if last := c.Partitions[len(c.Partitions)-1]; int(last) >= partitions {
		return nil, fmt.Errorf("partition %d does not exist; the topic has %d partitions", last, partitions)
	}
	return c.Partitions, nil
}

// brokers returns the number of brokers that lead partitions.
func (t *topic) brokers() int {
	brokers := make(map[int32]bool)
	for _, leader := range t.leaders {
		brokers[leader] = true
	}
	return len(brokers)
}
