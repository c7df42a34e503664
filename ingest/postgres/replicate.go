package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"
)

const (
	// confirmInterval is the time after which a new durable position is confirmed,
	// statusInterval that after which one is confirmed again: the server ends connections
	// without a sign of life after wal_sender_timeout, a minute by default.
	confirmInterval = 100 * time.Millisecond
	statusInterval  = 10 * time.Second
	// watchInterval is the interval in which the server's position and the publication are
	// read.
	watchInterval = 2 * time.Second
	// answerTimeout bounds the wait for the server in these.
	answerTimeout = time.Minute
)

// readChanges reads changes from the position on. It returns the error that ended it.
func (s *Source) readChanges(ctx context.Context, session *session) error {
	if err := session.replication.SyncConn(ctx); err != nil {
		return err
	}
	conn, err := session.replication.Hijack()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	confirmer := confirmer{source: s, conn: conn.Conn, wanted: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, confirmer.finish)
	defer stop()
	defer confirmer.close()
	if err := startReplication(conn, s.opener.options.Slot, s.opener.options.Publication, s.at.anchor.lsn); err != nil {
		return err
	}
	c := &changes{source: s, session: session, marked: s.at.lsn, anchor: s.at.anchor,
		start: place{phase: phaseChanges, lsn: s.at.lsn, index: s.at.index}, known: histories(&s.at, s.ahead, session.confirmed)}
	group.Go(func() error { return c.receive(ctx, conn, func() { signal(confirmer.wanted) }) })
	group.Go(func() error { return confirmer.run(ctx) })
	group.Go(func() error { return s.watch(ctx, session) })
	return group.Wait()
}

// confirmer sends the durable position to the server.
type confirmer struct {
	source *Source
	conn   net.Conn
	wanted chan struct{} // the server wants to know the position

	finished sync.Once

	mu struct {
		sync.Mutex
		sent uint64
	}
}

// run sends the position when it has changed, when the server wants to know it, and regularly.
func (c *confirmer) run(ctx context.Context) error {
	ticker := time.NewTicker(confirmInterval)
	defer ticker.Stop()
	var sentAt time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			always := now.Sub(sentAt) >= statusInterval
			select {
			case <-c.wanted:
				always = true
			default:
			}
			sent, err := c.send(always, now.Add(answerTimeout))
			if err != nil {
				return err
			}
			if sent {
				sentAt = now
			}
		}
	}
}

// send sends the position if it has changed, or always.
func (c *confirmer) send(always bool, deadline time.Time) (sent bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	durable := c.source.durable.Load()
	if !always && durable == c.mu.sent {
		return false, nil
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return false, err
	}
	message, err := (&pgproto3.CopyData{Data: appendStatus(nil, c.source.reached.Load(), durable)}).Encode(nil)
	if err != nil {
		return false, err
	}
	if _, err := c.conn.Write(message); err != nil {
		return false, err
	}
	c.mu.sent = durable
	return true, nil
}

// finish sends the last position and ends the outgoing half of the connection. The server then
// closes it, which ends Receive.
func (c *confirmer) finish() {
	c.finished.Do(func() {
		deadline := time.Now().Add(closeTimeout)
		_ = c.conn.SetDeadline(deadline) // also ends a write that hangs
		_, _ = c.send(false, deadline)   // else the next session sends it
		if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
}

// close closes the connection after finish, when no other goroutine reads from it. It reads the
// rest first: a connection that is closed with bytes to read is reset, and the server may lose
// the last position.
func (c *confirmer) close() {
	c.finish()
	_, _ = io.Copy(io.Discard, c.conn)
	_ = c.conn.Close()
}

// appendStatus appends a status update: the position received, and the durable one, which the
// server may forget. The time, which the server only reports, is zero.
func appendStatus(dst []byte, received, durable uint64) []byte {
	dst = append(dst, statusUpdate)
	for _, v := range []uint64{received, durable, durable, 0} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return append(dst, 0)
}

// watch reads the end of the log, and checks that the publication has the table as before, and that
// the table has its partitions: it could lack changes.
func (s *Source) watch(ctx context.Context, session *session) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		if err := s.look(ctx, session); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (s *Source) look(ctx context.Context, session *session) error {
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	session.catalog.Lock()
	defer session.catalog.Unlock()
	o := s.opener
	end, entry, err := lookAt(limited, session.catalog.conn, o.options.Publication, session.table.oid)
	if err != nil {
		return err
	}
	now := s.origin()
	if entry != now.publication {
		return fmt.Errorf("publication %s or the table was changed, and changes may be missing; %s", o.options.Publication, startOver)
	}
	earlier := now
	if err := o.compareTable(ctx, session, &earlier, &now); err != nil {
		return err
	}
	s.setOrigin(now)
	s.walEnd.Store(uint64(end))
	return nil
}

// watchRows reads the end of the log while the rows are read, until the function that it returns
// is called.
func (s *Source) watchRows(ctx context.Context, session *session) (stop func()) {
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				_ = s.look(ctx, session) // the same checks follow after the rows
			}
		}
	})
	return func() {
		close(ended)
		watching.Wait()
	}
}
