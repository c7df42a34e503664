package postgres

import (
	"fmt"
	"time"

	"docstore/ingest/postgres/pgoutput"
)

// A server that was restored from an older copy has the system identifier and the timeline of
// the lost one, and its log grows past the queue's cursor. So a cursor also says what the log
// before it contains: the transaction at its anchor, and behind that, up to the cursor, none
// that changes the table. The server sends the log from the anchor on, where the changes that
// the queue has are compared and skipped. An anchor before the position that the slot has
// confirmed is not sent; it was confirmed to the same history.

// anchor identifies a transaction that changed the table.
type anchor struct {
	lsn  pgoutput.LSN // of the commit record
	time uint64       // of the commit, microseconds since 2000
	xid  uint32       // 0: no transaction is known at lsn
}

// epoch is the begin of PostgreSQL's times.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (a *anchor) String() string {
	return fmt.Sprintf("transaction %d, committed at %s on %s", a.xid, a.lsn, epoch.Add(time.Duration(a.time)*time.Microsecond).Format(time.RFC3339Nano))
}

// history is what a cursor says about the log.
type history struct {
	anchor
	until pgoutput.LSN // no transaction behind the anchor and before it changed the table
	found bool         // the anchor was found, or need not be
}

// newHistory returns what a cursor says about the log of a server whose slot has confirmed a
// position.
func newHistory(c *cursor, confirmed pgoutput.LSN) history {
	return history{anchor: c.anchor, until: c.lsn, found: c.anchor.xid == 0 || confirmed > c.anchor.lsn}
}

// histories returns what the cursor of the source and that of the shard that is ahead say. Behind
// the latter nothing is to be compared: a lost connection continues at the former.
func histories(at, ahead *cursor, confirmed pgoutput.LSN) []history {
	known := []history{newHistory(at, confirmed)}
	if ahead != nil && at.anchor.lsn <= ahead.anchor.lsn {
		known = append(known, newHistory(ahead, confirmed))
	}
	return known
}

// begins compares a transaction of the log.
func (h *history) begins(m *pgoutput.Message) error {
	if !h.found && m.LSN == h.lsn && m.Time == h.time && m.XID == h.xid {
		h.found = true
	}
	if m.LSN < h.lsn {
		return nil
	}
	return h.passes(m.LSN + 1)
}

// passes checks the end of the log that was received.
func (h *history) passes(end pgoutput.LSN) error {
	if h.found || end <= h.lsn {
		return nil
	}
	return fmt.Errorf("the queue has %s, and the log of the server does not: an older copy of the server was restored, "+
		"and the queue may have changes that are lost and lack later ones; %s", h.String(), startOver)
}

// changes checks a transaction that changes the table.
func (h *history) changes(commit pgoutput.LSN) error {
	if commit <= h.lsn || commit >= h.until {
		return nil
	}
	return fmt.Errorf("the queue has the changes up to %s, and none of the transaction committed at %s: an older copy of the "+
		"server was restored; %s", h.until, commit, startOver)
}
