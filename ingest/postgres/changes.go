package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"docstore/ingest"
	"docstore/ingest/postgres/pgoutput"
)

// changes reads the changes of a table in a session.
type changes struct {
	source  *Source
	session *session
	start   place // changes up to it are skipped
	known   []history

	format *format // nil before the first Relation of the table
	// commit is the position of the commit record of the transaction that is being received,
	// xid and time identify it, count is the number of its changes so far.
	commit pgoutput.LSN
	xid    uint32
	time   uint64
	count  uint64
	inside bool // a transaction has begun and not ended

	room     room
	waiting  batch
	lookups  []lookup // of records in waiting
	oldRow   [][]byte
	newRow   [][]byte
	message  pgoutput.Message
	marked   pgoutput.LSN // position of the last record
	anchor   anchor       // the last transaction with a record
	markedAt time.Time
}

func (c *changes) lsn() pgoutput.LSN { return pgoutput.LSN(c.source.reached.Load()) }

// moveTo sets the position up to which changes were received.
func (c *changes) moveTo(lsn pgoutput.LSN) {
	if lsn > c.lsn() {
		c.source.reached.Store(uint64(lsn))
	}
}

// handle handles a message of pgoutput.
func (c *changes) handle(ctx context.Context, data []byte) error {
	m := &c.message
	if err := m.Decode(data); err != nil {
		return err
	}
	table := c.session.table.oid
	switch m.Kind {
	case pgoutput.Begin:
		for i := range c.known {
			if err := c.known[i].begins(m); err != nil {
				return err
			}
		}
		if end := c.source.end; end > 0 && m.LSN >= end {
			c.moveTo(end) // this transaction and all that follow were committed after Open
			return nil
		}
		c.commit, c.time, c.xid, c.count, c.inside = m.LSN, m.Time, m.XID, 0, true
	case pgoutput.Commit:
		c.inside = false
		c.moveTo(m.End)
	case pgoutput.Relation:
		return c.setRelation(ctx, m)
	case pgoutput.Truncate:
		if slices.Contains(m.Tables, table) {
			return fmt.Errorf("the transaction committed at %s truncated the table, which names no keys; %s", c.commit, startOver)
		}
	case pgoutput.Insert, pgoutput.Update, pgoutput.Delete:
		if m.Table == table {
			return c.change(m)
		}
	}
	return nil
}

// setRelation takes the columns of the table, which may have changed.
func (c *changes) setRelation(ctx context.Context, m *pgoutput.Message) error {
	o, t := c.source.opener, c.session.table
	if m.Table != t.oid {
		if (name{m.Namespace, m.Name}) == o.table {
			return fmt.Errorf("the table was dropped and made again before %s; %s", c.commit, startOver)
		}
		return nil // another table of the publication
	}
	names, oids := make([]string, len(m.Columns)), make([]uint32, len(m.Columns))
	var identity []string
	for i, column := range m.Columns {
		names[i], oids[i] = column.Name, column.Type
		if column.Key {
			identity = append(identity, column.Name)
		}
	}
	if err := checkIdentity(m.Identity, identity, t.keys); err != nil {
		return fmt.Errorf("the transaction committed at %s: %w", c.commit, err)
	}
	types, err := c.session.types(ctx, oids)
	if err != nil {
		return err
	}
	if c.format, err = newFormat(names, types, t.keys); err != nil {
		return fmt.Errorf("the transaction committed at %s: the primary key has changed: %w; %s", c.commit, err, startOver)
	}
	return nil
}

// checkIdentity checks that old rows contain the key.
func checkIdentity(identity pgoutput.ReplicaIdentity, columns, keys []string) error {
	missing := slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(columns, key) })
	switch {
	case identity == pgoutput.IdentityNothing:
		return nil // PostgreSQL refuses updates and deletes
	case missing, identity == pgoutput.IdentityDefault && len(columns) != len(keys):
		return fmt.Errorf("the primary key, or the replica identity, changed from %q to %q; %s", keys, columns, startOver)
	}
	return nil
}

var errNoRelation = errors.New("a change came before the description of its table")

// change adds the records of an insert, update or delete.
func (c *changes) change(m *pgoutput.Message) error {
	c.count++
	c.anchor = anchor{lsn: c.commit, time: c.time, xid: c.xid}
	removed := place{phase: phaseChanges, lsn: c.commit, index: 2*c.count - 1, anchor: c.anchor}
	done := place{phase: phaseChanges, lsn: c.commit, index: 2 * c.count, anchor: c.anchor}
	for i := range c.known {
		if err := c.known[i].changes(c.commit); err != nil {
			return err
		}
	}
	if !c.start.before(done) {
		return nil
	}
	f := c.format
	if f == nil {
		return errNoRelation
	}
	if m.Kind != pgoutput.Insert && m.HasOld && len(m.Old) != len(f.columns) || m.Kind != pgoutput.Delete && len(m.New) != len(f.columns) {
		return fmt.Errorf("a row of %d columns has %d or %d values", len(f.columns), len(m.Old), len(m.New))
	}
	c.oldRow = texts(c.oldRow[:0], m.Old)
	if m.Kind == pgoutput.Delete {
		c.add(f.remove(&c.room, c.oldRow), done)
		return nil
	}
	c.newRow = texts(c.newRow[:0], m.New)
	unknown := c.completeRow(m)
	if m.HasOld && f.keyChanged(c.oldRow, c.newRow) && c.start.before(removed) {
		c.add(f.remove(&c.room, c.oldRow), removed)
	}
	if unknown {
		c.addLookup(done)
		return nil
	}
	c.add(f.put(&c.room, c.newRow), done)
	return nil
}

// texts appends the values of a row to dst; nil: null or unknown.
func texts(dst [][]byte, values []pgoutput.Value) [][]byte {
	for _, v := range values {
		dst = append(dst, v.Text)
	}
	return dst
}

// completeRow takes unchanged TOASTed values from the old row. It reports whether some remain
// unknown.
func (c *changes) completeRow(m *pgoutput.Message) (unknown bool) {
	for i, v := range m.New {
		switch {
		case v.State != pgoutput.Unchanged:
		case m.OldFull && m.Old[i].State == pgoutput.Text:
			c.newRow[i] = c.oldRow[i]
		default:
			unknown = true
		}
	}
	return unknown
}

// keyChanged reports whether two rows have different keys.
func (f *format) keyChanged(before, after [][]byte) bool {
	return slices.ContainsFunc(f.keys, func(i int) bool { return string(before[i]) != string(after[i]) })
}

func (c *changes) add(r ingest.Record, at place) {
	c.waiting.add(r, at)
	c.marked = at.lsn
}

func (p place) before(other place) bool {
	return p.lsn < other.lsn || p.lsn == other.lsn && p.index < other.index
}

// flush sends the waiting records.
func (c *changes) flush(ctx context.Context) error {
	if err := c.resolve(ctx); err != nil {
		return err
	}
	return c.source.send(ctx, &c.waiting)
}

func (c *changes) full() bool {
	return len(c.waiting.records) >= batchRecords || c.waiting.bytes >= batchBytes
}

// heartbeatBytes is the log that an idle table may hold: PostgreSQL removes log in files of this
// size.
const heartbeatBytes = 16 << 20

// heartbeatInterval is the minimum time between heartbeats, so that a publisher's bounds of
// deletes, which count a minute's entries from 100, do not consider them.
const heartbeatInterval = 10 * time.Second

// HeartbeatID is the id of the deletes that move the cursor when the table does not change. No
// document has it: texts in PostgreSQL contain no zero bytes.
const HeartbeatID = "\x00heartbeat"

// heartbeatDue decides whether to send a heartbeat: the cursor in the queue is at marked, and
// nothing was to be read up to end.
func heartbeatDue(marked, end pgoutput.LSN, since time.Duration) bool {
	return end > marked && end-marked >= heartbeatBytes && since >= heartbeatInterval
}

// keepalive handles the position of the server between transactions.
func (c *changes) keepalive(end pgoutput.LSN, now time.Time) error {
	if c.inside || end < c.lsn() {
		return nil
	}
	for i := range c.known {
		if err := c.known[i].passes(end); err != nil {
			return err
		}
	}
	c.moveTo(end)
	// Not c.start, which is ahead of the queue after a lost connection.
	c.source.confirm(c.source.opened)
	if heartbeatDue(c.marked, end, now.Sub(c.markedAt)) {
		c.add(ingest.Record{ID: []byte(HeartbeatID), Delete: true}, place{phase: phaseChanges, lsn: end, anchor: c.anchor})
		c.markedAt = now
	}
	return nil
}

// The messages within CopyData.
const (
	walData      = 'w' // start, end, time of the server; data of the plugin
	walKeepalive = 'k' // end, time of the server, whether a reply is wanted
	statusUpdate = 'r' // written, flushed, applied, time; whether a reply is wanted
)

var errReplication = errors.New("malformed message of the replication protocol")

// receive receives messages until the connection fails.
func (c *changes) receive(ctx context.Context, conn *pgconn.HijackedConn, reply func()) error {
	for {
		message, err := conn.Frontend.Receive()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		switch message := message.(type) {
		case *pgproto3.CopyData:
			err = c.copyData(ctx, message.Data, reply)
		case *pgproto3.ErrorResponse:
			err = pgconn.ErrorResponseToPgError(message)
		case *pgproto3.CopyDone, *pgproto3.CommandComplete:
			err = fmt.Errorf("the server has ended the replication: %w", net.ErrClosed)
		}
		ended := c.source.end > 0 && !c.inside && c.lsn() >= c.source.end
		if err == nil && (ended || c.full() || conn.Frontend.ReadBufferLen() == 0) {
			err = c.flush(ctx)
		}
		if err != nil {
			return err
		}
		if ended {
			c.source.finished = true
			c.source.box.end(io.EOF)
			<-ctx.Done() // confirm is needed until Close
			return ctx.Err()
		}
	}
}

func (c *changes) copyData(ctx context.Context, data []byte, reply func()) error {
	const header = 1 + 3*8
	switch {
	case len(data) >= header && data[0] == walData:
		return c.handle(ctx, data[header:])
	case len(data) == 1+2*8+1 && data[0] == walKeepalive:
		if data[17] == 1 {
			reply()
		}
		return c.keepalive(pgoutput.LSN(binary.BigEndian.Uint64(data[1:])), time.Now())
	}
	return errReplication
}

// startReplication sends the command that starts to send changes, and waits for the answer.
func startReplication(conn *pgconn.HijackedConn, slot, publication string, from pgoutput.LSN) error {
	conn.Frontend.SendQuery(&pgproto3.Query{String: fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s)",
		quote(slot), from, quoteText(quote(publication)))})
	if err := conn.Frontend.Flush(); err != nil {
		return err
	}
	for {
		message, err := conn.Frontend.Receive()
		if err != nil {
			return err
		}
		switch message := message.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(message)
		}
	}
}

// quoteText returns a text as SQL. Slots, publications and snapshots contain no backslashes
// that matter: standard_conforming_strings is on in the protocol.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
