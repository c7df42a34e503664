package postgres

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/postgres/pgoutput"
	"docstore/internal/postgrestest"
)

// restored is a server that was copied when the source had read the rows 1 and 2.
type restored struct {
	*postgrestest.Server
	opener *Opener
	copy   *copied
	before []byte // the cursor at the copy
	back   func()
}

func newRestored(t *testing.T) *restored {
	r := &restored{Server: postgrestest.Start(t, "wal_sender_timeout=5s"), copy: newCopy()}
	r.Exec(t, "postgres", jobsTable)
	r.opener = newOpener(t, testURL(r.Server, "postgres", "table", "t"))
	r.read(t, "2", "INSERT INTO t VALUES (2, 0)")
	r.before = r.copy.cursor
	r.Stop()
	r.back = r.Snapshot(t)
	r.Restart(t)
	return r
}

// read runs a statement and reads until there is a document.
func (r *restored) read(t *testing.T, id, sql string) {
	t.Helper()
	s := r.copy.open(t, r.opener)
	r.Exec(t, "postgres", sql)
	r.copy.readUntil(t, s, id, id)
	s.Durable(r.copy.cursor)
	require.NoError(t, s.Close())
}

// restore puts the copy back, and writes transactions.
func (r *restored) restore(t *testing.T, transactions ...string) {
	t.Helper()
	r.Kill()
	r.back()
	r.Restart(t)
	for _, sql := range transactions {
		r.Exec(t, "postgres", sql)
	}
}

// resume returns the error of reading behind the cursors of shards until the row 9 comes.
func (r *restored) resume(t *testing.T, cursors ...[]byte) error {
	t.Helper()
	from, err := r.opener.Earliest(cursors)
	require.NoError(t, err)
	s, err := r.opener.Open(t.Context(), from)
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, s.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for {
		b, err := s.Next(ctx)
		if err != nil {
			return err
		}
		for _, record := range b.Records {
			if string(record.ID) == "9" {
				return nil
			}
		}
	}
}

// much is a statement that makes the log longer than any test's before.
const much = "INSERT INTO other SELECT " + wide + " FROM generate_series(1, 100)"

const older = "an older copy of the server was restored"

// A restored server that is written past the queue's cursor has lost changes of the queue.
func TestRestoredServer(t *testing.T) {
	r := newRestored(t)
	r.read(t, "3", "INSERT INTO t VALUES (3, 0)")
	lost := r.copy.cursor
	at, err := parseCursor(lost)
	require.NoError(t, err)
	require.NotZero(t, at.anchor.xid)
	require.NoError(t, r.resumeAfter(t, "INSERT INTO t VALUES (9, 0)", lost), "it is the same server")

	r.restore(t, "INSERT INTO t VALUES (4, 0)", much, "INSERT INTO t VALUES (9, 0)")
	require.ErrorContains(t, r.resume(t, lost), older)
	require.ErrorContains(t, r.resume(t, r.before, lost), older, "the shard that has lost changes is not the one where reading begins")
	require.ErrorContains(t, r.resume(t, lost, r.before), older)
	require.NoError(t, r.resume(t, r.before), "the queue has nothing that was lost")

	r.restore(t, "CREATE TABLE x ()", much)
	require.ErrorContains(t, r.resume(t, lost), older, "no transaction of the table follows")
	ends := newOpener(t, testURL(r.Server, "postgres", "table", "t"))
	ends.options.Follow = false
	r.opener = ends
	err = r.resume(t, lost)
	require.ErrorContains(t, err, older)
	require.False(t, errors.Is(err, io.EOF))
}

func (r *restored) resumeAfter(t *testing.T, sql string, cursors ...[]byte) error {
	t.Helper()
	r.Exec(t, "postgres", sql)
	return r.resume(t, cursors...)
}

// A restored server that changes the table before a heartbeat of the queue, behind which changes
// are read.
func TestRestoredServerBeforeHeartbeat(t *testing.T) {
	r := newRestored(t)
	s := r.copy.open(t, r.opener)
	r.Exec(t, "postgres", "INSERT INTO other SELECT "+wide+" FROM generate_series(1, 2000)")
	b, err := s.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, HeartbeatID, string(b.Records[0].ID))
	r.copy.apply(t, b)
	s.Durable(r.copy.cursor)
	require.NoError(t, s.Close())
	heartbeat := r.copy.cursor
	require.NoError(t, r.resumeAfter(t, "INSERT INTO t VALUES (9, 0)", heartbeat))

	more := "INSERT INTO other SELECT " + wide + " FROM generate_series(1, 2500)"
	r.restore(t, "INSERT INTO t VALUES (4, 0)", more, "INSERT INTO t VALUES (9, 0)")
	require.ErrorContains(t, r.resume(t, heartbeat), older)
	require.ErrorContains(t, r.resume(t, r.before, heartbeat), older)
	r.restore(t, more, "INSERT INTO t VALUES (9, 0)")
	require.NoError(t, r.resume(t, heartbeat), "nothing was lost")
}

// A cursor of version 0 knows nothing of the log. The next record does.
func TestCursorOfVersion0Continues(t *testing.T) {
	r := newRestored(t)
	at, err := parseCursor(r.before)
	require.NoError(t, err)
	at.anchor = anchor{lsn: at.lsn}
	require.NoError(t, r.resumeAfter(t, "INSERT INTO t VALUES (9, 0)", at.append(nil)))
}

// A connection that is lost behind the cursor of all shards continues there.
func TestHistories(t *testing.T) {
	at := func(lsn pgoutput.LSN) *cursor {
		return &cursor{phase: phaseChanges, lsn: lsn, anchor: anchor{lsn: lsn, xid: 1}}
	}
	require.Len(t, histories(at(100), nil, 50), 1)
	require.Len(t, histories(at(100), at(200), 50), 2)
	require.Len(t, histories(at(300), at(200), 50), 1)
}

func TestHistory(t *testing.T) {
	known := anchor{lsn: 100, time: 5, xid: 7}
	for _, test := range []struct {
		name      string
		c         cursor
		confirmed pgoutput.LSN
		messages  []pgoutput.Message
		want      string
	}{
		{"same", cursor{lsn: 100, anchor: known}, 100, []pgoutput.Message{{LSN: 100, Time: 5, XID: 7}, {LSN: 110}}, ""},
		{"later", cursor{lsn: 100, anchor: known}, 100, []pgoutput.Message{{LSN: 101, Time: 5, XID: 7}}, older},
		{"time", cursor{lsn: 100, anchor: known}, 90, []pgoutput.Message{{LSN: 95}, {LSN: 100, Time: 6, XID: 7}}, older},
		{"xid", cursor{lsn: 100, anchor: known}, 100, []pgoutput.Message{{LSN: 100, Time: 5, XID: 8}}, older},
		{"confirmed", cursor{lsn: 200, anchor: known}, 101, []pgoutput.Message{{LSN: 200}}, ""},
		{"between", cursor{lsn: 200, anchor: known}, 101, []pgoutput.Message{{LSN: 199}}, older},
		{"unknown", cursor{lsn: 100, anchor: anchor{lsn: 100}}, 100, []pgoutput.Message{{LSN: 101}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory(&test.c, test.confirmed)
			var err error
			for i := range test.messages {
				m := &test.messages[i]
				if err = errors.Join(err, h.begins(m)); err == nil {
					err = h.changes(m.LSN)
				}
			}
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
