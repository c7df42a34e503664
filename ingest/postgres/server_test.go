package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/postgrestest"
)

const jobsTable = `CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE other (body text); INSERT INTO t VALUES (1, 0)`

// A source continues on another timeline that contains all changes of the queue, also while it is
// open, and refuses one that does not.
func TestPromotion(t *testing.T) {
	server := postgrestest.Start(t)
	server.Exec(t, "postgres", jobsTable)
	o := newOpener(t, testURL(server, "postgres", "table", "t"))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (2, 0)")
	c.readUntil(t, s, "2", "0")
	s.Durable(c.cursor)
	server.Promote(t)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (3, 0)")
	c.readUntil(t, s, "3", "0")
	require.NoError(t, s.Close())
	at, err := parseCursor(c.cursor)
	require.NoError(t, err)
	require.EqualValues(t, 2, at.origin.timeline)
	server.Promote(t)
	s = c.open(t, o)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (4, 0)")
	c.readUntil(t, s, "4", "0")
	require.Equal(t, []string{"1", "2", "3", "4"}, c.log)
	require.NoError(t, s.Close())

	at, err = parseCursor(c.cursor) // of timeline 3
	require.NoError(t, err)
	at.origin.timeline = 2
	_, err = o.Open(t.Context(), at.append(nil))
	require.ErrorContains(t, err, "of timeline 2, which the server's timeline 3 does not contain")
}

// A slot that exceeds max_slot_wal_keep_size is refused, also if that happens while it is read.
func TestLostSlot(t *testing.T) {
	server := postgrestest.Start(t, "max_slot_wal_keep_size=1MB", "max_wal_size=64MB", "min_wal_size=32MB")
	server.Exec(t, "postgres", jobsTable)
	o := newOpener(t, testURL(server, "postgres", "table", "t"))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "1", "0")
	for range 2 {
		server.Exec(t, "postgres", "INSERT INTO other SELECT "+wide+" FROM generate_series(1, 2000)")
		server.Exec(t, "postgres", "CHECKPOINT")
	}
	require.ErrorContains(t, c.readEnd(t, s), "max_slot_wal_keep_size") // nothing was durable
	_, err := o.Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "max_slot_wal_keep_size")
}

// The server does not shut down while a reader of a slot has not confirmed all of its log, here a
// change of another table. The source closes its connection. Next waits until the server is back.
func TestShutdown(t *testing.T) {
	server := postgrestest.Start(t)
	server.Exec(t, "postgres", jobsTable)
	o := newOpener(t, testURL(server, "postgres", "table", "t"))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (2, 0)")
	c.readUntil(t, s, "2", "0")
	s.Durable(c.cursor)
	server.Exec(t, "postgres", "INSERT INTO other VALUES ('x')")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Stop()
	}()
	deadline := time.Now().Add(testTimeout)
	for running := true; running; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if b, err := s.Next(ctx); err == nil {
			c.apply(t, b)
			s.Durable(c.cursor)
		}
		cancel()
		require.True(t, time.Now().Before(deadline), "the server does not stop")
		select {
		case <-stopped:
			running = false
		default:
		}
	}
	server.Restart(t)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (3, 0)")
	c.readUntil(t, s, "3", "0")
	require.Equal(t, []string{"1", "2", "3"}, c.log)
}
