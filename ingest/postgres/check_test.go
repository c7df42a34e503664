package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"docstore/ingest/postgres/pgjson"
	"docstore/ingest/postgres/pgoutput"
)

type pgjsonType = pgjson.Type

var text = pgjson.String()

func TestCheckServer(t *testing.T) {
	good := server{version: 15_00_18, walLevel: "logical"}
	require.NoError(t, checkServer(&good, true))
	old, standby, replica := good, good, good
	old.version, standby.standby, replica.walLevel = 12_00_19, true, "replica"
	require.ErrorContains(t, checkServer(&old, false), "PostgreSQL 12; version 13")
	require.ErrorContains(t, checkServer(&standby, true), "primary")
	require.ErrorContains(t, checkServer(&replica, true), "set wal_level = logical")
	require.NoError(t, checkServer(&replica, false))
}

func TestCheckOrigin(t *testing.T) {
	c := cursor{phase: phaseChanges, origin: origin{system: 7, timeline: 2}, lsn: 100}
	same := server{system: 7, timeline: 2, walEnd: 100}
	require.NoError(t, checkOrigin(&same, &c))
	for problem, s := range map[string]server{
		"system identifier 8":                          {system: 8, timeline: 2, walEnd: 100},
		"log of the server ends at 0/63":               {system: 7, timeline: 2, walEnd: 99},
		"up to 0/64 of timeline 2, which the server's": {system: 7, timeline: 3, walEnd: 200, history: []branch{{1, 50}, {2, 99}}},
		"timeline 1 does not contain":                  {system: 7, timeline: 1, walEnd: 200},
	} {
		require.ErrorContains(t, checkOrigin(&s, &c), problem)
	}
	promoted := server{system: 7, timeline: 4, walEnd: 200, history: []branch{{1, 50}, {2, 100}, {3, 150}}}
	require.NoError(t, checkOrigin(&promoted, &c))
}

func TestCheckSlot(t *testing.T) {
	good := slot{exists: true, kind: "logical", plugin: "pgoutput", database: "d", walStatus: "reserved", confirmed: 100}
	c := &cursor{phase: phaseChanges, lsn: 100}
	require.NoError(t, checkSlot("s", &good, "d", c))
	require.NoError(t, checkSlot("s", &good, "d", nil))
	require.NoError(t, checkSlot("s", &slot{}, "d", nil))
	for problem, change := range map[string]func(*slot){
		"does not exist any more":        func(s *slot) { *s = slot{} },
		"physical with plugin":           func(s *slot) { s.kind, s.plugin = "physical", "" },
		`plugin "wal2json"`:              func(s *slot) { s.plugin = "wal2json" },
		"belongs to the database other":  func(s *slot) { s.database = "other" },
		"max_slot_wal_keep_size":         func(s *slot) { s.walStatus = "lost" },
		"begins at 0/65, the queue ends": func(s *slot) { s.confirmed = 101 },
	} {
		s := good
		change(&s)
		require.ErrorContains(t, checkSlot("s", &s, "d", c), problem)
	}
}

func TestCheckIdentity(t *testing.T) {
	keys := []string{"a", "b"}
	require.NoError(t, checkIdentity(pgoutput.IdentityDefault, []string{"b", "a"}, keys))
	require.NoError(t, checkIdentity(pgoutput.IdentityFull, []string{"a", "b", "c"}, keys))
	require.NoError(t, checkIdentity(pgoutput.IdentityIndex, []string{"a", "b", "c"}, keys))
	require.NoError(t, checkIdentity(pgoutput.IdentityNothing, nil, keys))
	require.ErrorContains(t, checkIdentity(pgoutput.IdentityDefault, []string{"a"}, keys), `from ["a" "b"] to ["a"]`)
	require.Error(t, checkIdentity(pgoutput.IdentityDefault, []string{"a", "b", "c"}, keys))
	require.Error(t, checkIdentity(pgoutput.IdentityIndex, []string{"b"}, keys))
}

func TestParseHistory(t *testing.T) {
	history, err := parseHistory([]byte("# comment\n1\t0/3000148\tno recovery target specified\n\n2\t16/B374D848\tbefore 2000-01-01\n"))
	require.NoError(t, err)
	require.Equal(t, []branch{{1, 0x3000148}, {2, 0x16_B374D848}}, history)
	for _, bad := range []string{"1", "x 0/1 y", "1 0 y"} {
		_, err := parseHistory([]byte(bad))
		require.Error(t, err)
	}
}

func TestHeartbeatDue(t *testing.T) {
	require.False(t, heartbeatDue(100, 100, time.Hour))
	require.False(t, heartbeatDue(100, 99, time.Hour))
	require.False(t, heartbeatDue(100, 100+heartbeatBytes-1, time.Hour))
	require.True(t, heartbeatDue(100, 100+heartbeatBytes, time.Hour))
	require.False(t, heartbeatDue(100, 100+heartbeatBytes, heartbeatInterval-1))
	require.True(t, heartbeatDue(100, 100+heartbeatBytes, heartbeatInterval))
}

func TestTemporary(t *testing.T) {
	for _, err := range []error{
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "55006"}, &pgconn.PgError{Code: "08006"},
		&net.OpError{Err: errors.New("reset")}, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded, errStandby,
	} {
		require.True(t, temporary(fmt.Errorf("wrapped: %w", err)), "%v", err)
	}
	for _, err := range []error{
		&pgconn.PgError{Code: "42P01"}, &pgconn.PgError{Code: "28P01"}, &pgconn.PgError{}, &pgproto3.ExceededMaxBodyLenErr{},
		errForeignCursor, errNoRelation, errEnd,
	} {
		require.False(t, temporary(err), "%v", err)
	}
}
