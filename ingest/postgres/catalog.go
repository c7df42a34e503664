package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"docstore/ingest/postgres/pgjson"
	"docstore/ingest/postgres/pgoutput"
	"docstore/internal/checksum"
)

// table is the description of a table.
type table struct {
	oid         uint32
	columns     []tableColumn
	keys        []string // of the primary key, in its order
	partitioned bool
}

// tableColumn is a column of a table. Generated columns are left out, because PostgreSQL does
// not send them with changes.
type tableColumn struct {
	name     string
	sqlType  string
	keyIndex int // in the primary key; -1: not part of it
}

// keysCRC identifies the primary key.
func keysCRC(keys []string) uint32 { return checksum.Of([]byte(strings.Join(keys, "\x00"))) }

// query runs a statement and returns its rows as text. A null is an empty string.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, parameters ...string) ([][]string, error) {
	values := make([][]byte, len(parameters))
	for i, p := range parameters {
		values[i] = []byte(p)
	}
	return textRows(conn.ExecParams(ctx, sql, values, nil, nil, nil).Read())
}

// command runs a statement of the replication protocol, or one without parameters.
func command(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return textRows(results[0])
}

func textRows(result *pgconn.Result) ([][]string, error) {
	if result.Err != nil {
		return nil, result.Err
	}
	rows := make([][]string, len(result.Rows))
	for i, row := range result.Rows {
		for _, value := range row {
			rows[i] = append(rows[i], string(value))
		}
	}
	return rows, nil
}

var errUnexpected = errors.New("unexpected answer of the server")

func parseOID(text string) (uint32, error) {
	oid, err := strconv.ParseUint(text, 10, 32)
	return uint32(oid), err
}

// describeServer reads the state of the server. The connection replication is one of the
// replication protocol, or nil if only rows are read.
func describeServer(ctx context.Context, conn, replication *pgconn.PgConn) (*server, error) {
	rows, err := query(ctx, conn, `SELECT current_setting('server_version_num'), pg_is_in_recovery(), current_setting('wal_level'), current_database()`)
	if err != nil {
		return nil, err
	}
	s := &server{standby: rows[0][1] == "t", walLevel: rows[0][2], database: rows[0][3]}
	if s.version, err = strconv.Atoi(rows[0][0]); err != nil || replication == nil {
		return s, err
	}
	rows, err = command(ctx, replication, "IDENTIFY_SYSTEM")
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 || len(rows[0]) < 4 {
		return nil, errUnexpected
	}
	timeline, err := parseOID(rows[0][1])
	if err != nil {
		return nil, err
	}
	s.timeline = timeline
	if s.system, err = strconv.ParseUint(rows[0][0], 10, 64); err != nil {
		return nil, err
	}
	s.walEnd, err = pgoutput.ParseLSN(rows[0][2])
	return s, err
}

// readHistory reads the history of the server's timeline.
func (s *server) readHistory(ctx context.Context, replication *pgconn.PgConn) error {
	if s.timeline == 1 {
		return nil // the first one has no history
	}
	rows, err := command(ctx, replication, fmt.Sprintf("TIMELINE_HISTORY %d", s.timeline))
	if err != nil {
		return err
	}
	if len(rows) != 1 || len(rows[0]) != 2 {
		return errUnexpected
	}
	s.history, err = parseHistory([]byte(rows[0][1]))
	return err
}

// describeTable reads the description of a table and checks that it can be followed.
func describeTable(ctx context.Context, conn *pgconn.PgConn, n name) (*table, error) {
	rows, err := query(ctx, conn, `SELECT c.oid, c.relkind, c.relpersistence, c.relreplident
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, n.schema, n.table)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("table %s does not exist", n)
	}
	oid, err := parseOID(rows[0][0])
	if err != nil {
		return nil, err
	}
	t := &table{oid: oid, partitioned: rows[0][1] == "p"}
	if err := t.readColumns(ctx, conn); err != nil {
		return nil, err
	}
	switch kind, persistence, identity := rows[0][1], rows[0][2], rows[0][3]; {
	case kind != "r" && kind != "p":
		return nil, fmt.Errorf("%s is not a table; read a view with query=SELECT... and key=COLUMN", n)
	case persistence != "p":
		return nil, fmt.Errorf("table %s is unlogged or temporary; its changes cannot be followed", n)
	case len(t.keys) == 0:
		return nil, fmt.Errorf("table %s has no primary key, which is the id of its documents", n)
	case identity != "d" && identity != "f":
		return nil, fmt.Errorf("the replica identity of %s does not contain the primary key; run ALTER TABLE %s REPLICA IDENTITY DEFAULT", n, n.quoted())
	}
	return t, nil
}

func (t *table) readColumns(ctx context.Context, conn *pgconn.PgConn) error {
	rows, err := query(ctx, conn, `SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(k.place, -1)
		FROM pg_attribute a LEFT JOIN (
			SELECT unnest(indkey) AS attnum, generate_subscripts(indkey, 1) AS place, indnkeyatts
			FROM pg_index WHERE indrelid = $1 AND indisprimary) k ON k.attnum = a.attnum AND k.place < k.indnkeyatts
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`, fmt.Sprint(t.oid))
	if err != nil {
		return err
	}
	t.columns = nil
	places := map[int]string{}
	for _, row := range rows {
		place, err := strconv.Atoi(row[2])
		if err != nil {
			return err
		}
		if place >= 0 {
			places[place] = row[0]
		}
		t.columns = append(t.columns, tableColumn{name: row[0], sqlType: row[1], keyIndex: place})
	}
	t.keys = nil
	for i := range len(places) {
		t.keys = append(t.keys, places[i])
	}
	return nil
}

// columnsCRC identifies the columns of the table, and its file, which another one replaces when all
// rows are rewritten.
func (t *table) columnsCRC(ctx context.Context, conn *pgconn.PgConn) (uint32, error) {
	rows, err := query(ctx, conn, `SELECT c.relfilenode, (SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '')
		FROM pg_class c WHERE c.oid = $1`, fmt.Sprint(t.oid))
	if err != nil || len(rows) == 0 {
		return 0, err // it was dropped, which the publication shows
	}
	return checksum.Of([]byte(rows[0][0]), []byte{' '}, []byte(rows[0][1])), nil
}

// keyTypes returns the SQL types of the key's columns.
func (t *table) keyTypes() []string {
	types := make([]string, len(t.keys))
	for _, c := range t.columns {
		if c.keyIndex >= 0 {
			types[c.keyIndex] = c.sqlType
		}
	}
	return types
}

// columnList returns the columns as SQL, with a prefix such as "t.".
func (t *table) columnList(prefix string) string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = prefix + quote(c.name)
	}
	return strings.Join(names, ", ")
}

var errNoPublication = errors.New("does not exist")

// describePublication checks that a publication has all changes of a table, and returns its
// entry.
func describePublication(ctx context.Context, conn *pgconn.PgConn, publication string, n name, oid uint32) (uint32, error) {
	rows, err := query(ctx, conn, `SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
			to_jsonb(r)->>'prqual' IS NOT NULL OR to_jsonb(r)->>'prattrs' IS NOT NULL,
			EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = $3 AND t.tablename = $4)
		FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = $2
		WHERE p.pubname = $1`, publication, fmt.Sprint(oid), n.schema, n.table)
	if err != nil {
		return 0, err
	}
	refuse := func(problem string) (uint32, error) { return 0, fmt.Errorf("publication %s %s", publication, problem) }
	switch {
	case len(rows) == 0:
		return 0, fmt.Errorf("publication %s %w", publication, errNoPublication)
	case rows[0][2] != "t":
		return refuse(fmt.Sprintf("does not contain %s; a partitioned table needs publish_via_partition_root", n))
	case rows[0][0] != "t":
		return refuse("does not publish all of insert, update, delete and truncate")
	case rows[0][1] == "t":
		return refuse(fmt.Sprintf("has a row filter or a list of columns for %s; publish the whole table", n))
	}
	_, entry, err := lookAt(ctx, conn, publication, oid)
	return entry, err
}

// lookAt returns the end of the log, and the OID of the entry of a table in a publication. The
// entry is that of the publication if it has all tables, and zero if there is none, or if not all
// kinds of changes are published.
func lookAt(ctx context.Context, conn *pgconn.PgConn, publication string, oid uint32) (end pgoutput.LSN, entry uint32, err error) {
	rows, err := query(ctx, conn, `SELECT pg_current_wal_lsn(), coalesce((SELECT CASE WHEN pubinsert AND pubupdate AND pubdelete AND pubtruncate
			THEN coalesce((SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = $2), p.oid) END
		FROM pg_publication p WHERE p.pubname = $1), 0)`, publication, fmt.Sprint(oid))
	if err != nil {
		return 0, 0, err
	}
	if end, err = pgoutput.ParseLSN(rows[0][0]); err != nil {
		return 0, 0, err
	}
	entry, err = parseOID(rows[0][1])
	return end, entry, err
}

// describeSlot reads the state of a replication slot.
func describeSlot(ctx context.Context, conn *pgconn.PgConn, name string) (*slot, error) {
	rows, err := query(ctx, conn, `SELECT slot_type, coalesce(plugin, ''), coalesce(database, ''), coalesce(wal_status, ''),
		coalesce(confirmed_flush_lsn, '0/0'), coalesce(active_pid::text, '') FROM pg_replication_slots WHERE slot_name = $1`, name)
	if err != nil || len(rows) == 0 {
		return &slot{}, err
	}
	row := rows[0]
	confirmed, err := pgoutput.ParseLSN(row[4])
	return &slot{exists: true, kind: row[0], plugin: row[1], database: row[2], walStatus: row[3], confirmed: confirmed, activeBy: row[5]}, err
}

// describeTypes returns the types with the given OIDs.
func describeTypes(ctx context.Context, conn *pgconn.PgConn, oids []uint32) ([]*pgjson.Type, error) {
	types := make([]*pgjson.Type, len(oids))
	for i, oid := range oids {
		var err error
		if types[i], err = describeType(ctx, conn, oid, 0); err != nil {
			return nil, err
		}
	}
	return types, nil
}

// maxTypeDepth bounds arrays and domains of each other.
const maxTypeDepth = 16

func describeType(ctx context.Context, conn *pgconn.PgConn, oid uint32, depth int) (*pgjson.Type, error) {
	if t := pgjson.Builtin(oid); t != nil || depth > maxTypeDepth {
		return t, nil
	}
	rows, err := query(ctx, conn, `SELECT typtype, typbasetype, CASE WHEN typinput = 'array_in'::regproc THEN typelem ELSE 0 END,
		(SELECT e.typdelim FROM pg_type e WHERE e.oid = t.typelem) FROM pg_type t WHERE t.oid = $1`, fmt.Sprint(oid))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return pgjson.String(), nil // it was dropped after the change
	}
	base, err := parseOID(rows[0][1])
	if err != nil {
		return nil, err
	}
	element, err := parseOID(rows[0][2])
	switch {
	case err != nil:
		return nil, err
	case rows[0][0] == "d":
		return describeType(ctx, conn, base, depth+1)
	case element != 0:
		t, err := describeType(ctx, conn, element, depth+1)
		if err != nil || t == nil || rows[0][3] == "" {
			return pgjson.String(), err
		}
		return pgjson.Array(t, rows[0][3][0]), nil
	}
	return pgjson.String(), nil
}

// from returns the table as SQL. The rows of tables that inherit from it are not its own, those
// of partitions are.
func (t *table) from(n name) string {
	if t.partitioned {
		return n.quoted()
	}
	return "ONLY " + n.quoted()
}
