package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"docstore/ingest/postgres/pgoutput"
	"docstore/internal/checksum"
	"docstore/internal/ctxtime"
)

const (
	// slotWait bounds the wait for the server to notice that an earlier reader of the slot has
	// gone. wal_sender_timeout is a minute by default.
	slotWait = 75 * time.Second
	slotPoll = 100 * time.Millisecond
	// closeTimeout bounds the time to close the connections.
	closeTimeout = 2 * time.Second
)

// session has the connections to a server.
type session struct {
	// catalog is for single statements.
	catalog struct {
		sync.Mutex
		conn *pgconn.PgConn
	}
	replication *pgconn.PgConn // nil: only rows are read
	rows        *pgconn.PgConn // in a transaction that reads the rows; nil: they have been read
	table       *table         // nil: a query is read
	confirmed   pgoutput.LSN   // by the slot
}

// connect opens a connection with additional parameters.
func (o *Opener) connect(ctx context.Context, parameters ...string) (*pgconn.PgConn, error) {
	config := o.config.Copy()
	for i := 0; i < len(parameters); i += 2 {
		config.RuntimeParams[parameters[i]] = parameters[i+1]
	}
	return pgconn.ConnectConfig(ctx, config)
}

// close closes all connections.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, conn := range []*pgconn.PgConn{s.catalog.conn, s.replication, s.rows} {
		if conn != nil {
			_ = conn.Close(ctx) // the server ends an unfinished transaction
		}
	}
}

// begin connects and checks that reading can continue at a cursor; nil at the start. It returns
// the position where it does, and the end of the server's log. ahead is a later cursor of the same
// queue; nil: none.
func (o *Opener) begin(ctx context.Context, at, ahead *cursor) (_ *session, position cursor, end pgoutput.LSN, err error) {
	s := &session{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.catalog.conn, err = o.connect(ctx, "enable_seqscan", "off"); err != nil {
		return nil, cursor{}, 0, err
	}
	if o.options.Table == "" {
		position, err = o.beginQuery(ctx, s, at)
	} else {
		position, end, err = o.beginTable(ctx, s, at, ahead)
	}
	return s, position, end, err
}

func (o *Opener) beginQuery(ctx context.Context, s *session, at *cursor) (cursor, error) {
	state, err := describeServer(ctx, s.catalog.conn, nil)
	if err != nil {
		return cursor{}, err
	}
	state.standby = false // rows can be read from a standby
	if err := checkServer(state, false); err != nil {
		return cursor{}, err
	}
	position := cursor{phase: phaseQuery, origin: origin{keys: keysCRC(o.options.Key), query: checksum.Of([]byte(o.options.Query))}}
	if at == nil {
		o.log.Info("the rows of the query are read once: a later start reads only those with greater keys")
	} else {
		if at.phase != phaseQuery {
			return cursor{}, errors.New("the queue was filled from a table, not from a query")
		}
		if at.origin.keys != position.origin.keys {
			return cursor{}, fmt.Errorf("the queue was filled by a query with another key than %q", o.options.Key)
		}
		if at.origin.query != 0 && at.origin.query != position.origin.query {
			return cursor{}, fmt.Errorf("the queue was filled by another query, which may have other rows up to the last key; "+
				"give that query again, or %s", startOver)
		}
		o.log.Warn("the query is read behind the last key: earlier rows that were inserted, updated or deleted since are not read", "key", o.options.Key)
		query := position.origin.query
		position = *at
		position.origin.query = query
	}
	return position, o.beginRows(ctx, s)
}

// beginRows begins the transaction that reads the rows.
func (o *Opener) beginRows(ctx context.Context, s *session) error {
	parameters := []string{"row_security", "off"} // an error instead of missing rows
	if o.options.Table != "" {
		parameters = append(parameters, "enable_seqscan", "off", "enable_sort", "off", "enable_bitmapscan", "off")
	}
	var err error
	if s.rows, err = o.connect(ctx, parameters...); err != nil {
		return err
	}
	_, err = command(ctx, s.rows, "BEGIN READ ONLY, ISOLATION LEVEL REPEATABLE READ")
	return err
}

func (o *Opener) beginTable(ctx context.Context, s *session, at, ahead *cursor) (cursor, pgoutput.LSN, error) {
	if at != nil && at.phase == phaseQuery {
		return cursor{}, 0, errors.New("the queue was filled from a query, not from a table")
	}
	if at != nil && at.origin.slot != o.options.Slot {
		return cursor{}, 0, fmt.Errorf("the queue was filled through the replication slot %s, not %s; give slot=%s, or %s",
			at.origin.slot, o.options.Slot, at.origin.slot, startOver)
	}
	var err error
	if s.replication, err = o.connect(ctx, "replication", "database"); err != nil {
		return cursor{}, 0, err
	}
	state, err := describeServer(ctx, s.catalog.conn, s.replication)
	if err != nil {
		return cursor{}, 0, err
	}
	if err := checkServer(state, true); err != nil {
		return cursor{}, 0, err
	}
	if at == nil || at.phase == phaseRows {
		if err := o.beginRows(ctx, s); err != nil {
			return cursor{}, 0, err
		}
		// Before the slot is made, so that the table is not rewritten between the slot's
		// snapshot and the first read: some forms of ALTER TABLE make it empty for older
		// snapshots.
		if _, err := command(ctx, s.rows, "LOCK TABLE "+o.table.quoted()+" IN ACCESS SHARE MODE"); err != nil {
			return cursor{}, 0, err
		}
	}
	if s.table, err = describeTable(ctx, s.catalog.conn, o.table); err != nil {
		return cursor{}, 0, err
	}
	entry, err := o.ensurePublication(ctx, s, at == nil)
	if err != nil {
		return cursor{}, 0, err
	}
	now := origin{system: state.system, timeline: state.timeline, table: s.table.oid, publication: entry, keys: keysCRC(s.table.keys), slot: o.options.Slot}
	if at == nil {
		if err := o.compareTable(ctx, s, &origin{}, &now); err != nil {
			return cursor{}, 0, err
		}
	}
	for _, c := range []*cursor{at, ahead} {
		if c == nil {
			continue
		}
		if err := o.checkSame(ctx, s, state, c, &now); err != nil {
			return cursor{}, 0, err
		}
	}
	found, err := o.waitForSlot(ctx, s)
	if err != nil {
		return cursor{}, 0, err
	}
	if err := checkSlot(o.options.Slot, found, state.database, at); err != nil {
		return cursor{}, 0, err
	}
	s.confirmed = found.confirmed
	position := cursor{phase: phaseRows, lsn: found.confirmed}
	if at == nil && !found.exists {
		if position.lsn, err = o.createSlot(ctx, s); err != nil {
			return cursor{}, 0, err
		}
		s.confirmed = position.lsn
	}
	position.anchor.lsn = position.lsn
	if at != nil {
		position = *at
	}
	position.origin = now
	return position, state.walEnd, nil
}

// checkSame checks that a cursor refers to the same table on the same server.
func (o *Opener) checkSame(ctx context.Context, s *session, state *server, at *cursor, now *origin) error {
	if at.origin.system == state.system && at.origin.timeline != state.timeline {
		if err := state.readHistory(ctx, s.replication); err != nil {
			return err
		}
	}
	if err := checkOrigin(state, at); err != nil {
		return err
	}
	switch {
	case at.origin.table != now.table:
		return fmt.Errorf("table %s was dropped and made again since; %s", o.table, startOver)
	case at.origin.keys != now.keys:
		return fmt.Errorf("the primary key of %s has changed to %q since; %s", o.table, s.table.keys, startOver)
	case at.origin.publication != now.publication:
		return fmt.Errorf("publication %s was changed since, and changes may be missing; %s", o.options.Publication, startOver)
	}
	return o.compareTable(ctx, s, &at.origin, now)
}

// compareTable sets the partitions and columns of now. It returns an error if the partitions differ
// from those of an earlier origin, and logs other columns.
func (o *Opener) compareTable(ctx context.Context, s *session, earlier, now *origin) error {
	var err error
	if now.partitions, err = s.table.checkPartitions(ctx, s.catalog.conn, earlier.partitions); err != nil {
		return fmt.Errorf("the partitions of %s have changed: %w", o.table, err)
	}
	if now.columns, err = s.table.columnsCRC(ctx, s.catalog.conn); err != nil {
		return err
	}
	if earlier.columns != 0 && earlier.columns != now.columns {
		o.log.Warn("the columns of the table have changed, or all its rows were rewritten, which the server does not send: "+
			"documents stay as they are until their rows change. To refresh them, set a column of all rows to its value "+
			"(UPDATE table SET column = column), or append to another queue", "table", o.table.String())
	}
	return nil
}

// ensurePublication checks the publication and returns the OID of the table's entry. If there is
// none it makes one, at the start only: it would lack the changes before.
func (o *Opener) ensurePublication(ctx context.Context, s *session, start bool) (uint32, error) {
	entry, err := describePublication(ctx, s.catalog.conn, o.options.Publication, o.table, s.table.oid)
	if !errors.Is(err, errNoPublication) || !start {
		return entry, err
	}
	create := fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish_via_partition_root = true)", quote(o.options.Publication), o.table.quoted())
	if _, err := command(ctx, s.catalog.conn, create); err != nil {
		return 0, fmt.Errorf("making a publication: %w; let the owner of the table run %s", err, create)
	}
	entry, err = describePublication(ctx, s.catalog.conn, o.options.Publication, o.table, s.table.oid)
	return entry, err
}

// waitForSlot returns the state of the slot when it is not in use.
func (o *Opener) waitForSlot(ctx context.Context, s *session) (*slot, error) {
	logged := false
	for begun := time.Now(); ; {
		found, err := describeSlot(ctx, s.catalog.conn, o.options.Slot)
		if err != nil || found.activeBy == "" {
			return found, err
		}
		if !logged {
			o.log.Info("waiting until the replication slot is free", "slot", o.options.Slot, "process", found.activeBy)
			logged = true
		}
		if time.Since(begun) > slotWait {
			return nil, fmt.Errorf("replication slot %s is in use by process %s of the server; a slot has one reader: "+
				"stop the other one, or choose another name with slot=NAME", o.options.Slot, found.activeBy)
		}
		if !ctxtime.Sleep(ctx, slotPoll) {
			return nil, ctx.Err()
		}
	}
}

// createSlot makes the slot, and lets the transaction of the rows see the table as of the
// slot's first position, which it returns.
func (o *Opener) createSlot(ctx context.Context, s *session) (pgoutput.LSN, error) {
	o.log.Info("making a replication slot, which waits for the end of transactions that write", "slot", o.options.Slot)
	rows, err := command(ctx, s.replication, "CREATE_REPLICATION_SLOT "+quote(o.options.Slot)+" LOGICAL pgoutput EXPORT_SNAPSHOT")
	if err != nil {
		return 0, fmt.Errorf("making the replication slot %s: %w", o.options.Slot, err)
	}
	if len(rows) != 1 || len(rows[0]) < 3 {
		return 0, errUnexpected
	}
	lsn, err := pgoutput.ParseLSN(rows[0][1])
	if err != nil {
		return 0, err
	}
	if _, err := command(ctx, s.rows, "SET TRANSACTION SNAPSHOT "+quoteText(rows[0][2])); err != nil {
		return 0, err
	}
	// The next command ends the transaction that exports the snapshot.
	_, err = command(ctx, s.replication, "IDENTIFY_SYSTEM")
	return lsn, err
}

// temporary reports whether a connection may succeed later: the server restarts, or the
// network failed.
func temporary(err error) bool {
	var ofServer *pgconn.PgError
	if errors.As(err, &ofServer) {
		switch ofServer.Code {
		case "57P01", "57P02", "57P03", // shutdown, crash of another process, starting up
			"53300", // too many connections
			"55006": // the slot is in use: the server has not noticed the end of the last connection
			return true
		}
		return ofServer.Code[:min(2, len(ofServer.Code))] == "08" // connection exception
	}
	var tooLong *pgproto3.ExceededMaxBodyLenErr
	var ofNetwork net.Error
	switch {
	case errors.As(err, &tooLong):
		return false
	case errors.Is(err, errStandby), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return true
	}
	return errors.As(err, &ofNetwork) || pgconn.SafeToRetry(err)
}
