package nats

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream that was restored from an older copy has the name and the creation time of the lost one,
// and its sequences grow past the cursor. So a cursor also has the time and a checksum of its last
// message. If that message is not in the stream any more, the next one that was stored after it
// tells: sequences and times ascend together.

// compare compares the content of the message at the position, if it is known, with the stream.
// found is the first message there or behind it, later the first one that was stored after it; nil:
// none.
func (p *position) compare(found, later *message) error {
	switch {
	case p.content.time == 0, found != nil && found.sequence == p.last && found.content == p.content:
		return nil
	case found != nil && found.sequence == p.last:
		later = found
	case later == nil || later.sequence > p.last:
		return nil
	}
	return fmt.Errorf("the messages up to %d were read, the last one of %s, and the stream has another message %d, of %s: an older copy "+
		"of the stream was restored, which lacks messages; use --resume=false to append it from its start, preferably to a new queue",
		p.last, formatTime(p.content.time), later.sequence, formatTime(later.content.time))
}

// look reads the messages with which a position is compared.
func (c *Config) look(ctx context.Context, js jetstream.JetStream, p *position) (found, later *message, err error) {
	if p.content.time == 0 {
		return nil, nil, nil
	}
	found, err = c.first(ctx, js, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: p.last})
	if err != nil || found != nil && found.sequence == p.last {
		return found, nil, err
	}
	behind := time.Unix(0, p.content.time+1)
	later, err = c.first(ctx, js, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &behind})
	return found, later, err
}

// first returns the first message of the subject from a start on; nil: there is none.
func (c *Config) first(ctx context.Context, js jetstream.JetStream, from jetstream.OrderedConsumerConfig) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	from.FilterSubjects = []string{c.Subject}
	consumer, err := js.OrderedConsumer(ctx, c.Stream, from)
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	defer func() { _ = js.DeleteConsumer(ctx, c.Stream, info.Name) }() // else the server does it later
	if info.NumPending == 0 {
		return nil, nil
	}
	m, err := consumer.Next(jetstream.FetchContext(ctx))
	if err != nil {
		return nil, err
	}
	described, err := describe(m)
	return &described, err
}
