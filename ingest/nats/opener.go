package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"docstore/ingest"
)

// Opener opens a stream. It implements ingest.Opener.
type Opener struct {
	config        Config
	watchInterval time.Duration // tests shorten it
	// latest is the last of the positions that Earliest compared, for Open.
	latest atomic.Pointer[position]
}

var _ ingest.Opener = (*Opener)(nil)

// NewOpener checks the configuration. It does not connect.
func NewOpener(config Config) (*Opener, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
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
	if p.stream != o.config.Stream {
		return nil, fmt.Errorf("the queue's cursor is of stream %s, not of %s; use --resume=false to append %[2]s from its start",
			p.stream, o.config.Stream)
	}
	return p, nil
}

// Earliest returns a cursor at or before each of the cursors; empty: the start. The next Open
// checks that the stream also contains the messages before the others.
func (o *Opener) Earliest(cursors [][]byte) ([]byte, error) {
	var first, last *position
	started := false // a cursor is at the start
	for _, cursor := range cursors {
		if len(cursor) == 0 {
			started = true
			continue
		}
		decoded, err := o.Position(cursor)
		if err != nil {
			return nil, err
		}
		p := decoded.(*position)
		if first != nil && p.created != first.created {
			return nil, fmt.Errorf("the shards' cursors are of different streams %s, created at %s and %s",
				p.stream, formatTime(first.created), formatTime(p.created))
		}
		if first == nil || p.last < first.last {
			first = p
		}
		if last == nil || p.last > last.last {
			last = p
		}
	}
	o.latest.Store(last)
	if first == nil || started {
		return nil, nil
	}
	return first.append(nil), nil
}

// Open connects to a server and starts reading behind a cursor.
func (o *Opener) Open(ctx context.Context, cursor []byte) (ingest.Source, error) {
	var after *position
	if len(cursor) > 0 {
		p, err := o.Position(cursor)
		if err != nil {
			return nil, fmt.Errorf("nats: %w", err)
		}
		after = p.(*position)
	}
	src, err := o.open(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("nats: opening stream %s of %v: %w", o.config.Stream, o.config.Servers, err)
	}
	return src, nil
}

func (o *Opener) open(ctx context.Context, after *position) (_ *Source, err error) {
	urls := make([]string, len(o.config.Servers))
	for i, server := range o.config.Servers {
		urls[i] = "nats://" + server
	}
	connection, err := natsgo.Connect(strings.Join(urls, ","), o.config.connectOptions()...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			connection.Close()
		}
	}()
	limited, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(limited, o.config.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errors.New("the stream does not exist")
	}
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if info.Config.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("the stream has retention %s, which discards a message when a consumer has acknowledged it; "+
			"create a stream with retention limits that has it as source, and read that one", info.Config.Retention)
	}
	now := o.config.stateOf(info)
	if err := checkExpiry(now); err != nil {
		return nil, err
	}
	start := &position{created: now.created, last: now.first - 1, stream: o.config.Stream}
	if after != nil {
		if err := after.check(now); err != nil {
			return nil, err
		}
		start.last, start.content = after.last, after.content
	}
	for _, p := range []*position{after, o.latest.Swap(nil)} {
		if p == nil {
			continue
		}
		if err := p.checkEnd(now); err != nil {
			return nil, err
		}
		found, later, err := o.config.look(limited, js, p)
		if err != nil {
			return nil, err
		}
		if err := p.compare(found, later); err != nil {
			return nil, err
		}
	}
	consumer, err := js.OrderedConsumer(limited, o.config.Stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{o.config.Subject},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    start.last + 1,
	})
	if err != nil {
		return nil, err
	}
	return newSource(&o.config, connection, js, stream, consumer, start, now.last, o.watchInterval)
}

// stateOf returns the state of a stream.
func (c *Config) stateOf(info *jetstream.StreamInfo) state {
	limits := &info.Config
	return state{
		created: info.Created.UnixNano(),
		first:   max(info.State.FirstSeq, 1),
		last:    info.State.LastSeq,
		expires: strings.HasPrefix(c.Stream, bucketPrefix) && (limits.MaxAge > 0 || limits.AllowMsgTTL) && limits.SubjectDeleteMarkerTTL <= 0,
		replaces: c.ID == IDOfSubject && limits.MaxMsgsPerSubject > 0 &&
			limits.MaxMsgs <= 0 && limits.MaxBytes <= 0 && limits.MaxAge <= 0,
	}
}
