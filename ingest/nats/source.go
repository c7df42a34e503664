package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"docstore/ingest"
	"docstore/internal/checksum"
	"docstore/internal/ctxtime"
)

// Source reads a stream. It implements ingest.Source.
type Source struct {
	config     *Config
	pattern    []string // the words of the subject
	connection *natsgo.Conn
	js         jetstream.JetStream
	stream     jetstream.Stream
	consumer   jetstream.Consumer
	consuming  jetstream.ConsumeContext

	at    position // behind the last batch
	end   uint64   // the last sequence to read, for a source that ends
	done  bool     // the source has ended
	ready []*ingest.Batch

	// messages are received in order: handing is locked from the choice of a message until it
	// is sent, because a new consumer may begin while the old one waits.
	messages chan jetstream.Msg
	handing  sync.Mutex

	waiting atomic.Uint64             // messages in the stream behind the last batch
	read    atomic.Pointer[delivered] // the last message
	// caughtUp receives a message, for a source that ends, if there are none behind it.
	caughtUp chan *delivered

	watching sync.WaitGroup
	// failed ends with the error that the watcher found, or at Close.
	failed context.Context
	fail   context.CancelCauseFunc
}

var _ ingest.Source = (*Source)(nil)

var errClosed = errors.New("closed")

// delivered says which message of a consumer was delivered. The consumer is replaced when
// messages or heartbeats are missing.
type delivered struct {
	consumer string
	number   uint64 // of the message among those of the consumer; 0: none yet
}

func newSource(config *Config, connection *natsgo.Conn, js jetstream.JetStream, stream jetstream.Stream, consumer jetstream.Consumer,
	start *position, last uint64, interval time.Duration) (*Source, error) {
	s := &Source{
		config: config, pattern: strings.Split(config.Subject, "."),
		connection: connection, js: js, stream: stream, consumer: consumer, at: *start,
		messages: make(chan jetstream.Msg, messagesWait), caughtUp: make(chan *delivered, 1),
	}
	s.failed, s.fail = context.WithCancelCause(context.Background())
	info := consumer.CachedInfo()
	s.read.Store(&delivered{consumer: info.Name})
	s.waiting.Store(info.NumPending)
	s.end, s.done = last, !config.Follow && info.NumPending == 0
	ahead := max(FetchBytes, 2*int(connection.MaxPayload()))
	var err error
	if s.consuming, err = consumer.Consume(s.receive, jetstream.PullMaxBytes(ahead)); err != nil {
		return nil, err
	}
	s.watching.Go(func() { s.watch(interval) })
	return s, nil
}

// receive receives the messages in the goroutine of a subscription.
func (s *Source) receive(m jetstream.Msg) {
	s.handing.Lock()
	defer s.handing.Unlock()
	select {
	case s.messages <- m:
	case <-s.failed.Done():
	}
}

// Next returns the next records.
func (s *Source) Next(ctx context.Context) (*ingest.Batch, error) {
	for len(s.ready) == 0 {
		if s.done {
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

// poll waits for messages and makes batches of them.
func (s *Source) poll(ctx context.Context) error {
	var first jetstream.Msg
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failed.Done():
		return s.failure(context.Cause(s.failed))
	case first = <-s.messages:
	case last := <-s.caughtUp:
		s.done = last == s.read.Load() && len(s.messages) == 0
		return nil
	}
	messages, err := s.gather(first)
	if err != nil {
		return s.failure(err)
	}
	if next, another := s.unverified(messages); next > 0 {
		if err := s.verify(ctx, next, another); err != nil {
			return err
		}
	}
	s.batches(messages)
	last := messages[len(messages)-1]
	s.waiting.Store(last.pending)
	s.read.Store(&last.delivered)
	s.done = !s.config.Follow && (last.sequence >= s.end || last.pending == 0)
	return nil
}

func (s *Source) failure(err error) error {
	return fmt.Errorf("nats: reading stream %s: %w", s.config.Stream, err)
}

// message is a message and its place in the stream.
type message struct {
	jetstream.Msg
	sequence, pending uint64
	content           content
	delivered         delivered
}

// describe returns a message with its place.
func describe(m jetstream.Msg) (message, error) {
	metadata, err := m.Metadata()
	if err != nil {
		return message{}, err
	}
	return message{
		Msg: m, sequence: metadata.Sequence.Stream, pending: metadata.NumPending,
		content:   content{time: metadata.Timestamp.UnixNano(), crc: checksum.Of([]byte(m.Subject()), m.Data())},
		delivered: delivered{metadata.Consumer, metadata.Sequence.Consumer},
	}, nil
}

// gather takes the messages that are there.
func (s *Source) gather(first jetstream.Msg) (messages []message, err error) {
	last, bytes := s.at.last, 0
	for m := first; ; {
		described, err := describe(m)
		if err != nil {
			return nil, err
		}
		if described.sequence <= last {
			return nil, fmt.Errorf("the server sent message %d after %d", described.sequence, last)
		}
		last = described.sequence
		messages = append(messages, described)
		if bytes += len(m.Data()); bytes >= PollBytes {
			return messages, nil
		}
		select {
		case m = <-s.messages:
		default:
			return messages, nil
		}
	}
}

// unverified returns the first sequence that does not certainly continue the previous one: a
// message is missing, or another consumer has sent it, maybe of another stream of the name.
// 0: none. another reports whether a message is of another consumer.
func (s *Source) unverified(messages []message) (first uint64, another bool) {
	next, consumer := s.at.last+1, s.read.Load().consumer
	for _, m := range messages {
		another = another || m.delivered.consumer != consumer
		if first == 0 && (m.sequence != next || another) {
			first = next
		}
		next++
	}
	return first, another
}

// verify checks that the stream is still the same one, and that messages from a sequence on
// were not discarded by its limits. With another consumer it compares the last message, too.
func (s *Source) verify(ctx context.Context, next uint64, another bool) error {
	before := position{created: s.at.created, last: next - 1}
	for {
		now, err := s.look(ctx)
		if err == nil {
			if err := before.check(now); err != nil {
				return s.failure(err)
			}
			if !another {
				return nil
			}
			var found, later *message
			if found, later, err = s.config.look(ctx, s.js, &s.at); err == nil {
				if err := s.at.compare(found, later); err != nil {
					return s.failure(err)
				}
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.failed.Err() != nil {
			return s.failure(context.Cause(s.failed))
		}
		ctxtime.Sleep(ctx, retryInterval)
	}
}

// look returns the state of the stream.
func (s *Source) look(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := s.stream.Info(ctx)
	if err != nil {
		return state{}, err
	}
	return s.config.stateOf(info), nil
}

// watch detects a stream that was deleted or created again and, for a source that has read
// everything, new or deleted messages, until the source is closed or fails.
func (s *Source) watch(interval time.Duration) {
	missing := 0
	for ctxtime.Sleep(s.failed, interval) {
		now, err := s.look(s.failed)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if missing++; missing >= missingStreamLooks {
				s.fail(errors.New("the stream was deleted"))
			}
			continue
		}
		missing = 0
		if err != nil {
			continue // a server is away
		}
		if err := sameStream(s.at.created, now); err != nil {
			s.fail(err)
			continue
		}
		s.lookAtConsumer()
	}
}

// lookAtConsumer updates the lag if all messages that were delivered have been read.
func (s *Source) lookAtConsumer() {
	ctx, cancel := context.WithTimeout(s.failed, requestTimeout)
	defer cancel()
	read := s.read.Load()
	info, err := s.consumer.Info(ctx)
	if err != nil {
		return
	}
	now := delivered{info.Name, info.Delivered.Consumer}
	if now != *read && now.number > 0 {
		return
	}
	s.waiting.Store(info.NumPending)
	if info.NumPending == 0 && !s.config.Follow {
		select {
		case s.caughtUp <- read:
		default:
		}
	}
}

// Durable does nothing: the stream discards messages by its limits.
func (s *Source) Durable([]byte) {}

// Lag returns the number of messages behind those read.
func (s *Source) Lag() (n int64, unit string) { return int64(s.waiting.Load()), "messages" }

// Close disconnects.
func (s *Source) Close() error {
	s.fail(errClosed)
	s.watching.Wait()
	s.consuming.Stop()
	s.connection.Close()
	return nil
}
