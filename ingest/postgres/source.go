package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"docstore/ingest"
	"docstore/ingest/postgres/pgoutput"
	"docstore/internal/ctxtime"
)

const (
	// maxMessageBytes bounds a message of the server, which has a row: with replica identity
	// full the old and the new one.
	maxMessageBytes = 64 << 20
	// maxWaitingBytes bounds the records that wait for Next, except for a single larger batch.
	maxWaitingBytes = 1 << 20
	// batchRecords and batchBytes bound a batch that is collected before it waits for Next.
	batchRecords = 256
	batchBytes   = 256 << 10

	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Source reads a table or query.
type Source struct {
	opener *Opener
	box    *mailbox
	cancel context.CancelFunc
	ended  chan struct{}

	// opened is the position of Open: the queue has the changes before it.
	opened pgoutput.LSN
	// at is the position of the goroutine that reads.
	at cursor
	// ahead is the last cursor of the shards; nil: none is behind that of Open.
	ahead *cursor
	// end is the position at which the source ends; zero: it is followed. finished says that
	// Next has all records up to it; changes are confirmed until Close.
	end      pgoutput.LSN
	finished bool

	// durable is the position that the slot may advance to, reached the one up to which changes
	// were received, walEnd the end of the server's log; zero: unknown.
	durable, reached, walEnd atomic.Uint64

	mu struct {
		sync.Mutex
		origin origin // of the cursors of Next
	}
	attempt uint32
	base    []byte
}

// Open starts reading behind a cursor. It connects, so it fails if the server is not there.
// Later Next waits for the server.
func (o *Opener) Open(ctx context.Context, data []byte) (ingest.Source, error) {
	var from *cursor
	if len(data) > 0 {
		c, err := parseCursor(data)
		if err != nil {
			return nil, fmt.Errorf("postgres: %w", err)
		}
		from = &c
	}
	ahead := o.latest.Swap(nil)
	session, at, end, err := o.begin(ctx, from, ahead)
	if err != nil {
		return nil, o.wrap(err)
	}
	if from != nil && at.phase != phaseChanges {
		at.attempt++
		at.base = at.key
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Source{opener: o, box: newMailbox(), cancel: cancel, ended: make(chan struct{}), opened: at.lsn, at: at, ahead: ahead, attempt: at.attempt, base: at.base}
	s.walEnd.Store(uint64(end))
	if !o.options.Follow {
		s.end = end
	}
	// The log up to the cursor is confirmed when it is known to be the queue's: see keepalive.
	s.durable.Store(uint64(session.confirmed))
	s.reached.Store(uint64(at.lsn))
	s.setOrigin(at.origin)
	go s.run(running, session)
	return s, nil
}

// name returns the name of the table for messages.
func (o *Opener) name() string {
	if o.options.Query != "" {
		return "the query"
	}
	return o.table.String()
}

// wrap says what failed.
func (o *Opener) wrap(err error) error {
	var tooLong *pgproto3.ExceededMaxBodyLenErr
	if errors.As(err, &tooLong) {
		err = fmt.Errorf("a row has more than %d MiB: %w", maxMessageBytes>>20, err)
	}
	return fmt.Errorf("postgres: reading %s at %s: %w", o.name(), o.config.Host, err)
}

func (s *Source) origin() origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.origin
}

func (s *Source) setOrigin(o origin) {
	s.mu.Lock()
	s.mu.origin = o
	s.mu.Unlock()
}

// errEnd ends the rows of a query.
var errEnd = errors.New("all rows have been read")

// run reads until ctx ends, the rows of a query end, or reading cannot continue.
func (s *Source) run(ctx context.Context, session *session) {
	defer close(s.ended)
	backoff := minBackoff
	for {
		before := s.at
		err := s.read(ctx, session)
		session.close()
		if s.at.lsn != before.lsn || s.at.index != before.index {
			backoff = minBackoff
		}
		for {
			switch {
			case ctx.Err() != nil || s.finished:
				s.box.end(net.ErrClosed)
				return
			case errors.Is(err, errEnd):
				s.box.end(io.EOF)
				return
			case !temporary(err):
				s.box.end(s.opener.wrap(err))
				return
			}
			s.opener.log.Warn("the connection to PostgreSQL was lost", "error", err.Error(), "retry_in", backoff.String())
			ctxtime.Sleep(ctx, backoff)
			backoff = min(2*backoff, maxBackoff)
			at := s.at
			at.origin = s.origin()
			if session, at, _, err = s.opener.begin(ctx, &at, s.ahead); err == nil {
				s.at = at
				s.setOrigin(at.origin)
				break
			}
		}
	}
}

// read reads in a session: the rows, unless they have been read, then the changes.
func (s *Source) read(ctx context.Context, session *session) error {
	if session.rows != nil {
		if err := s.readRows(ctx, session); err != nil {
			return err
		}
	}
	if s.at.phase == phaseQuery {
		return errEnd
	}
	if s.at.phase == phaseRows {
		s.at.phase, s.at.index, s.at.key = phaseChanges, 0, nil
	}
	return s.readChanges(ctx, session)
}

// send passes records to Next. The position is then behind the last of them.
func (s *Source) send(ctx context.Context, b *batch) error {
	if len(b.records) == 0 {
		b.bytes = 0
		return nil
	}
	if err := s.box.put(ctx, b); err != nil {
		return err
	}
	last := b.places[len(b.places)-1]
	s.at.lsn, s.at.index, s.at.key, s.at.anchor = last.lsn, last.index, last.key, last.anchor
	*b = batch{records: b.records[:0], places: b.places[:0]}
	return nil
}

// Next returns the next records. While the server is not there it waits.
func (s *Source) Next(ctx context.Context) (*ingest.Batch, error) {
	taken, err := s.box.take(ctx)
	if err != nil {
		return nil, err
	}
	at := cursor{origin: s.origin(), attempt: s.attempt, base: s.base}
	after := func(i int) cursor {
		c, p := at, &taken.places[i]
		c.phase, c.lsn, c.index, c.key, c.anchor = p.phase, p.lsn, p.index, p.key, p.anchor
		if p.phase == phaseChanges {
			c.attempt, c.base = 0, nil
		}
		return c
	}
	return &ingest.Batch{
		Records: taken.records,
		Bytes:   int64(taken.bytes - recordBytes*len(taken.records)),
		Ends:    s.opener.Ends(),
		Oldest:  oldestOf(taken.places),
		AppendCursor: func(dst []byte, i int) []byte {
			c := after(i)
			return c.append(dst)
		},
		Included: func(p ingest.Position, i int) bool {
			c := after(i)
			return p.(*cursor).includes(&c)
		},
		Place: func(i int) string {
			c := after(i)
			return s.opener.name() + ", " + c.String()
		},
	}, nil
}

// oldestOf returns the time of the first commit among places; zero: there are only rows and heartbeats.
func oldestOf(places []place) time.Time {
	for _, p := range places {
		if p.phase == phaseChanges && p.lsn == p.anchor.lsn {
			return epoch.Add(time.Duration(p.anchor.time) * time.Microsecond)
		}
	}
	return time.Time{}
}

// Durable lets the server remove its log before the position of the cursor, if that is among
// the changes.
func (s *Source) Durable(data []byte) {
	c, err := parseCursor(data)
	if err != nil || c.phase != phaseChanges {
		return
	}
	s.confirm(c.lsn)
}

// confirm lets the slot advance to a position.
func (s *Source) confirm(lsn pgoutput.LSN) {
	for {
		old := s.durable.Load()
		if uint64(lsn) <= old || s.durable.CompareAndSwap(old, uint64(lsn)) {
			return
		}
	}
}

// Lag returns the bytes of the server's log that were not read yet.
func (s *Source) Lag() (int64, string) {
	end, reached := s.walEnd.Load(), s.reached.Load()
	if end == 0 {
		return 0, ""
	}
	return int64(end - min(reached, end)), "bytes"
}

// Close stops reading, confirms the last durable position, and closes the connections. Next must
// not be running.
func (s *Source) Close() error {
	s.cancel()
	<-s.ended
	return nil
}
