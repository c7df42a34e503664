package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"docstore/ingest/postgres/pgoutput"
)

// minVersion is the oldest supported server: 13 reports the state of a slot's log.
const minVersion = 13_00_00

// server is the state of a database server.
type server struct {
	version  int // such as 150018
	standby  bool
	walLevel string
	system   uint64
	timeline uint32
	walEnd   pgoutput.LSN
	database string
	// history has the timelines that the current one continues, read only if a cursor is of
	// another timeline.
	history []branch
}

// branch is the end of a timeline that another one continues.
type branch struct {
	timeline uint32
	end      pgoutput.LSN
}

// slot is the state of a replication slot.
type slot struct {
	exists    bool
	kind      string
	plugin    string
	database  string
	walStatus string
	confirmed pgoutput.LSN
	activeBy  string // process; empty: not in use
}

// startOver tells how to continue after changes were lost.
const startOver = "append to another queue, which reads the whole table again"

// errStandby: during a failover it is temporary.
var errStandby = errors.New("the server is a standby; connect to the primary")

// checkServer returns an error if the source cannot be followed on a server.
func checkServer(s *server, follow bool) error {
	switch {
	case s.version < minVersion:
		return fmt.Errorf("the server is PostgreSQL %d; version %d or later is needed", s.version/1_00_00, minVersion/1_00_00)
	case s.standby:
		return errStandby
	case follow && s.walLevel != "logical":
		return fmt.Errorf("wal_level is %s; set wal_level = logical in postgresql.conf and restart the server", s.walLevel)
	}
	return nil
}

// checkOrigin returns an error if the log of the server does not continue the one of the
// cursor.
func checkOrigin(s *server, c *cursor) error {
	o := &c.origin
	switch {
	case o.system != s.system:
		return fmt.Errorf("the database cluster has the system identifier %d, the queue was filled from %d; "+
			"connect to that one, or %s", s.system, o.system, startOver)
	case o.timeline != s.timeline:
		for _, b := range s.history {
			if b.timeline == o.timeline && c.lsn <= b.end {
				return nil
			}
		}
		return fmt.Errorf("the queue has changes up to %s of timeline %d, which the server's timeline %d does not contain: "+
			"a standby was promoted, or a backup restored, that lacks changes; %s", c.lsn, o.timeline, s.timeline, startOver)
	case c.lsn > s.walEnd, c.anchor.xid != 0 && c.anchor.lsn >= s.walEnd:
		return fmt.Errorf("the queue has changes up to %s, but the log of the server ends at %s: a backup was restored; %s",
			c.lsn, s.walEnd, startOver)
	}
	return nil
}

// checkSlot returns an error if the changes behind the cursor, nil at the start, cannot be
// read from the slot.
func checkSlot(name string, s *slot, database string, c *cursor) error {
	switch {
	case !s.exists && c == nil:
		return nil
	case !s.exists:
		return fmt.Errorf("replication slot %s does not exist any more, so changes after %s are lost; %s", name, c.lsn, startOver)
	case s.kind != "logical" || s.plugin != "pgoutput":
		return fmt.Errorf("replication slot %s is %s with plugin %q, want logical with pgoutput; choose another name with slot=NAME", name, s.kind, s.plugin)
	case s.database != database:
		return fmt.Errorf("replication slot %s belongs to the database %s; choose another name with slot=NAME", name, s.database)
	case s.walStatus == "lost":
		return fmt.Errorf("replication slot %s has lost changes: the log exceeded max_slot_wal_keep_size; drop the slot and %s", name, startOver)
	case c != nil && s.confirmed > c.lsn:
		return fmt.Errorf("replication slot %s begins at %s, the queue ends at %s: the slot was made again, or another reader has used it, "+
			"and the changes between are lost; %s", name, s.confirmed, c.lsn, startOver)
	}
	return nil
}

// parseHistory parses a timeline history file: lines of a timeline, the position where it
// ends, and a reason.
func parseHistory(content []byte) ([]branch, error) {
	var history []branch
	for line := range bytes.Lines(content) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("the timeline history has the line %q", line)
		}
		timeline, err := strconv.ParseUint(string(fields[0]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the timeline history has the line %q", line)
		}
		end, err := pgoutput.ParseLSN(string(fields[1]))
		if err != nil {
			return nil, err
		}
		history = append(history, branch{uint32(timeline), end})
	}
	return history, nil
}
