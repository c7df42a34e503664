package postgres

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/internal/postgrestest"
	"docstore/internal/testseed"
)

// testTimeout bounds the wait for records.
const testTimeout = 60 * time.Second

// copied is a copy of a table that is made from the records of a source.
type copied struct {
	documents map[string]string
	cursor    []byte
	log       []string // ids of puts, and deletes with a minus
	puts      []string // the documents in order
}

func newCopy() *copied { return &copied{documents: map[string]string{}} }

func testURL(server *postgrestest.Server, database string, parameters ...string) string {
	u := server.URL(database)
	for i := 0; i < len(parameters); i += 2 {
		u += "&" + parameters[i] + "=" + url.QueryEscape(parameters[i+1])
	}
	return u
}

func newOpener(t testing.TB, url string) *Opener {
	t.Helper()
	options, err := ParseURL(url)
	require.NoError(t, err)
	options.Follow = options.Table != ""
	o, err := New(options)
	require.NoError(t, err)
	return o
}

// open opens the source behind the copy's cursor.
func (c *copied) open(t testing.TB, o *Opener) ingest.Source {
	t.Helper()
	s, err := o.Open(t.Context(), c.cursor)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// apply applies a batch.
func (c *copied) apply(t testing.TB, b *ingest.Batch) {
	t.Helper()
	require.NotEmpty(t, b.Records)
	for i, r := range b.Records {
		require.NoError(t, r.Problem, b.Place(i))
		id := string(r.ID)
		switch {
		case id == HeartbeatID:
			require.True(t, r.Delete)
		case r.Delete:
			require.Empty(t, r.Document)
			delete(c.documents, id)
			c.log = append(c.log, "-"+id)
		default:
			c.documents[id] = string(r.Document)
			c.log, c.puts = append(c.log, id), append(c.puts, string(r.Document))
		}
		c.cursor = b.AppendCursor(nil, i)
	}
}

// read applies batches until done reports true.
func (c *copied) read(t testing.TB, s ingest.Source, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for !done() {
		b, err := s.Next(ctx)
		require.NoError(t, err, "the copy has %d documents; %q", len(c.documents), c.log[max(0, len(c.log)-20):])
		c.apply(t, b)
	}
}

// readUntil reads until the document of an id is as given, in part.
func (c *copied) readUntil(t testing.TB, s ingest.Source, id, part string) {
	t.Helper()
	c.read(t, s, func() bool { return strings.Contains(c.documents[id], part) })
}

// readEnd reads until the error that ends the source.
func (c *copied) readEnd(t testing.TB, s ingest.Source) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for {
		b, err := s.Next(ctx)
		if err != nil {
			return err
		}
		c.apply(t, b)
	}
}

func (c *copied) ids() []string { return slices.Sorted(maps.Keys(c.documents)) }

// newDatabase makes a database.
func newDatabase(t testing.TB, server *postgrestest.Server, sql string) string {
	t.Helper()
	database := "test_" + strings.ToLower(strings.NewReplacer("/", "_", "-", "_").Replace(t.Name()))
	server.Exec(t, "postgres", "CREATE DATABASE "+database)
	server.Exec(t, database, sql)
	return database
}

// TestSource runs the tests that share a server, each with a database.
func TestSource(t *testing.T) {
	server := postgrestest.Start(t, "wal_sender_timeout=5s", "max_wal_size=64MB", "min_wal_size=32MB")
	for _, test := range []struct {
		name string
		run  func(t *testing.T, server *postgrestest.Server)
	}{
		{"rows", testRows},
		{"types", testTypes},
		{"composite", testCompositeKey},
		{"toast", testTOAST},
		{"toastdeleted", testTOASTDeleted},
		{"toastfull", testTOASTFull},
		{"columns", testColumns},
		{"partitions", testPartitions},
		{"changedpartitions", testChangedPartitions},
		{"firstpartition", testFirstPartition},
		{"followedpartitions", testFollowedPartitions},
		{"rewrites", testRewrites},
		{"large", testLargeTransaction},
		{"restartrows", testRestartInRows},
		{"resume", testResumeEverywhere},
		{"stops", testStops},
		{"refuses", testRefuses},
		{"query", testQuery},
		{"problems", testProblems},
		{"heartbeat", testHeartbeat},
		{"confirm", testConfirm},
		{"ends", testEnds},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, server) })
	}
}

func testRows(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE jobs (id bigint PRIMARY KEY, title text, open boolean);
		INSERT INTO jobs SELECT i, 'job ' || i, i % 2 = 0 FROM generate_series(1, 1000) i`)
	o := newOpener(t, testURL(server, database, "table", "jobs", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `INSERT INTO jobs VALUES (1001, 'late', NULL); UPDATE jobs SET title = 'changed' WHERE id = 7;
		DELETE FROM jobs WHERE id = 8; UPDATE jobs SET id = -9 WHERE id = 9`)
	c.readUntil(t, s, "-9", "job 9")
	require.Len(t, c.documents, 1000)
	require.Equal(t, `{"id":7,"title":"changed","open":false}`, c.documents["7"])
	require.Equal(t, `{"id":1001,"title":"late","open":null}`, c.documents["1001"])
	require.NotContains(t, c.documents, "8")
	require.NotContains(t, c.documents, "9")
	require.Equal(t, []string{"1001", "7", "-8", "-9", "-9"}, c.log[1000:])
}

// The rows and the changes give the same documents.
func testTypes(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN age AS int; CREATE TYPE pair AS (a int, b text);
		CREATE TABLE t (id uuid PRIMARY KEY, n numeric, f float8, r real, b bool, j json, jb jsonb, ts timestamp, tz timestamptz, d date, i interval,
			bin bytea, moods mood[], m mood, a age, ages age[], p pair, matrix int[][], texts text[], boxes box[], generated int GENERATED ALWAYS AS (1) STORED, v int2vector)`)
	insert := func(id string) {
		server.Exec(t, database, `SET TimeZone = 'Asia/Tokyo'; INSERT INTO t VALUES ('`+id+`', 12.50, 1e-7, 0.1, true, E'{"a":\n 1}', '{"b": [1, 2]}',
			'2026-11-23 08:45:00.5', '2026-11-23 08:45:00+01', '2026-11-23', '1 day 2 hours', '\x00ff', '{happy,NULL}', 'sad', 42, '{1,2}', ROW(1, 'x'),
			'{{1,2},{3,4}}', '{a,"b c",NULL}', '{(1,1),(0,0)}', DEFAULT, '1 2')`)
	}
	const first, second = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
	insert(first)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	insert(second)
	c.readUntil(t, s, second, "id")
	want := `{"id":"` + first + `","n":12.50,"f":1e-07,"r":0.1,"b":true,"j":{"a":1},"jb":{"b": [1, 2]},` +
		`"ts":"2026-11-23T08:45:00.5","tz":"2026-11-23T07:45:00Z","d":"2026-11-23","i":"P1DT2H","bin":"AP8=","moods":["happy",null],"m":"sad",` +
		`"a":42,"ages":[1,2],"p":"(1,x)","matrix":[[1,2],[3,4]],"texts":["a","b c",null],"boxes":["(1,1),(0,0)"],"v":"1 2"}`
	require.Equal(t, want, c.documents[first])
	require.Equal(t, strings.Replace(want, first, second, 1), c.documents[second])
}

func testCompositeKey(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (n int, tenant text, at timestamptz, raw bytea, PRIMARY KEY (tenant, at, raw));
		INSERT INTO t SELECT i, 'a,' || i % 7, '2026-01-01'::timestamptz + i * interval '1 hour', decode(lpad(to_hex(i), 4, '0'), 'hex') FROM generate_series(1, 600) i`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `UPDATE t SET n = -1 WHERE n = 17; DELETE FROM t WHERE n = 18; UPDATE t SET tenant = 'b' WHERE n = 600`)
	const moved = "b,2026-01-26T00:00:00Z,\x02X"
	c.readUntil(t, s, moved, "600")
	require.Len(t, c.documents, 599)
	require.Contains(t, c.documents[`a\,3,2026-01-01T17:00:00Z,`+"\x00\x11"], `"n":-1`)
	// A restart in the middle of the rows.
	resumed := &copied{documents: map[string]string{}, cursor: nil}
	testInterruptedRows(t, server, resumed, database)
	require.Equal(t, c.documents, resumed.documents)
}

// testInterruptedRows reads the rows of the table through another slot, with an interruption
// after each batch.
func testInterruptedRows(t *testing.T, server *postgrestest.Server, c *copied, database string) {
	again := newOpener(t, testURL(server, database, "table", "t", "slot", database+"_2", "publication", database))
	rounds := 0
	for {
		s, err := again.Open(t.Context(), c.cursor)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		b, err := s.Next(ctx)
		cancel()
		require.NoError(t, s.Close())
		if err != nil {
			break // all rows, and no changes
		}
		b.Records = b.Records[:min(len(b.Records), 50+rounds)]
		c.apply(t, b)
		rounds++
	}
	require.Greater(t, rounds, 3)
	server.Exec(t, database, "SELECT pg_drop_replication_slot('"+again.options.Slot+"')")
}

// wide is an expression for a value that is TOASTed: random, so that it cannot be compressed.
const wide = `(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400))`

func testTOAST(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int, part text, n int, body text, PRIMARY KEY (part, id));
		INSERT INTO t SELECT i, 'a"b', 0, `+wide+` FROM generate_series(1, 5) i`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, `a"b,5`, "body")
	require.NoError(t, s.Close())
	body := c.documents[`a"b,1`]
	// While nothing reads: unchanged values, a row that is deleted later, and one whose key moves.
	server.Exec(t, database, `UPDATE t SET n = 1; UPDATE t SET n = 2 WHERE id = 2; DELETE FROM t WHERE id = 3; UPDATE t SET id = 40, n = 3 WHERE id = 4;
		UPDATE t SET n = 4 WHERE id = 40; ALTER TABLE t RENAME COLUMN n TO number; UPDATE t SET number = 5 WHERE id = 5;
		INSERT INTO t VALUES (9, 'A', 0, 'end')`)
	s = c.open(t, o)
	c.readUntil(t, s, `A,9`, `end`) // it sorts before the rows that were read
	require.Equal(t, []string{`A,9`, `a"b,1`, `a"b,2`, `a"b,40`, `a"b,5`}, c.ids())
	require.Equal(t, strings.Replace(body, `"n":0`, `"number":1`, 1), c.documents[`a"b,1`])
	require.Contains(t, c.documents[`a"b,2`], `"number":2`)
	require.Contains(t, c.documents[`a"b,40`], `"number":4`)
	require.Greater(t, len(c.documents[`a"b,40`]), 12_000)
}

// A batch of updates whose rows were all deleted before it is read.
func testTOASTDeleted(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int, body text); INSERT INTO t SELECT 1, 0, `+wide)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "1", "body")
	require.NoError(t, s.Close())
	server.Exec(t, database, "UPDATE t SET n = 1")
	server.Exec(t, database, "DELETE FROM t")
	s = c.open(t, o)
	c.read(t, s, func() bool { return len(c.documents) == 0 })
	require.Equal(t, []string{"1", "-1"}, c.log)
}

func testTOASTFull(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t REPLICA IDENTITY FULL;
		INSERT INTO t SELECT i, 0, `+wide+` FROM generate_series(1, 3) i`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "3", "body")
	require.NoError(t, s.Close())
	body := c.documents["1"]
	server.Exec(t, database, `UPDATE t SET n = 1; UPDATE t SET id = 30 WHERE id = 3; DELETE FROM t`)
	s = c.open(t, o)
	c.read(t, s, func() bool { return len(c.documents) == 0 })
	require.Equal(t, strings.Replace(body, `"n":0`, `"n":1`, 1), c.puts[3], "from the old row: the table is empty")
	require.Equal(t, []string{"1", "2", "3", "1", "2", "3", "-3", "30", "-1", "-2", "-30"}, c.log)
}

func testColumns(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, a text, b int); CREATE TABLE other (id int PRIMARY KEY)`)
	server.Exec(t, database, "CREATE PUBLICATION everything FOR ALL TABLES")
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database, "publication", "everything"))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `INSERT INTO t VALUES (1, 'x', 1); INSERT INTO other VALUES (1);
		ALTER TABLE t ADD COLUMN c bool DEFAULT true; INSERT INTO t VALUES (2, 'x', 2);
		ALTER TABLE t DROP COLUMN a; ALTER TABLE t ALTER COLUMN b TYPE text; ALTER TABLE t RENAME b TO "B,""";
		TRUNCATE other; ALTER TABLE t RENAME TO moved; INSERT INTO moved VALUES (3, 'three'); ALTER TABLE moved RENAME TO t`)
	c.readUntil(t, s, "3", "three")
	require.Equal(t, map[string]string{
		"1": `{"id":1,"a":"x","b":1}`,
		"2": `{"id":2,"a":"x","b":2,"c":true}`,
		"3": `{"id":3,"B,\"":"three","c":true}`,
	}, c.documents)
}

func testPartitions(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
		CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100); CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (200);
		INSERT INTO t SELECT i, `+wide+` FROM generate_series(98, 102) i`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `UPDATE t SET id = 103 WHERE id = 98; INSERT INTO t VALUES (1, 'end')`)
	c.readUntil(t, s, "1", "end")
	require.Equal(t, []string{"1", "100", "101", "102", "103", "99"}, c.ids())
	require.Greater(t, len(c.documents["103"]), 12_000)
}

const partitionedTable = `CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
	CREATE TABLE a PARTITION OF t FOR VALUES FROM (0) TO (100);
	CREATE TABLE b PARTITION OF t FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
	CREATE TABLE b1 PARTITION OF b FOR VALUES FROM (100) TO (150);
	INSERT INTO t VALUES (1, 0), (101, 0)`

// Changes of the partitions that the server does not send are refused. Partitions that were made
// empty are not.
func testChangedPartitions(t *testing.T, server *postgrestest.Server) {
	const attached = `CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (300, 0); `
	const attach = `ALTER TABLE t ATTACH PARTITION c FOR VALUES FROM (300) TO (400)`
	for _, test := range []struct {
		name         string
		transactions []string
		want         string
	}{
		{"truncate", []string{"TRUNCATE a"}, "was detached, truncated or rewritten"},
		{"truncatesub", []string{"TRUNCATE b1"}, "was detached, truncated or rewritten"},
		{"detach", []string{"ALTER TABLE t DETACH PARTITION a"}, "was detached, truncated or rewritten"},
		{"detachandmake", []string{"ALTER TABLE t DETACH PARTITION a; CREATE TABLE c PARTITION OF t FOR VALUES FROM (0) TO (50)"}, "was detached, truncated or rewritten"},
		{"attach", []string{attached, attach}, "partition c was attached with rows"},
		{"attachatonce", []string{attached + attach}, "partition c was attached with rows"},
		{"attachsub", []string{`CREATE TABLE c (id int PRIMARY KEY, n int) PARTITION BY RANGE (id); CREATE TABLE c1 PARTITION OF c FOR VALUES FROM (300) TO (350);
			INSERT INTO c VALUES (300, 0)`, attach}, "partition c1 was attached with rows"},
		{"attachempty", []string{"CREATE TABLE c (id int PRIMARY KEY, n int)", attach}, ""},
		{"make", []string{"CREATE TABLE c PARTITION OF t FOR VALUES FROM (300) TO (400)", "CREATE TABLE b2 PARTITION OF b FOR VALUES FROM (150) TO (200)",
			"INSERT INTO t VALUES (160, 0), (300, 0)"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			database := newDatabase(t, server, partitionedTable)
			o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
			c := newCopy()
			s := c.open(t, o)
			server.Exec(t, database, "INSERT INTO t VALUES (2, 0)")
			c.readUntil(t, s, "2", "2")
			require.NoError(t, s.Close())
			for _, sql := range test.transactions {
				server.Exec(t, database, sql)
			}
			server.Exec(t, database, "INSERT INTO t VALUES (102, 0)")
			s, err := o.Open(t.Context(), c.cursor)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			c.readUntil(t, s, "102", "102")
			require.NoError(t, s.Close())
			requireEqualTable(t, server, database, c)
			require.NoError(t, c.open(t, o).Close())
		})
	}
}

// The first partition of a table without partitions.
func testFirstPartition(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	session, at, _, err := o.begin(t.Context(), nil, nil)
	require.NoError(t, err)
	session.close()
	server.Exec(t, database, "CREATE TABLE a (id int PRIMARY KEY, n int)")
	server.Exec(t, database, "INSERT INTO a VALUES (1, 0)")
	server.Exec(t, database, "ALTER TABLE t ATTACH PARTITION a DEFAULT")
	_, err = o.Open(t.Context(), at.append(nil))
	require.ErrorContains(t, err, "partition a was attached with rows")
}

// The same while the source is followed.
func testFollowedPartitions(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, partitionedTable)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "101", "101")
	server.Exec(t, database, "CREATE TABLE c PARTITION OF t FOR VALUES FROM (300) TO (400)")
	server.Exec(t, database, "INSERT INTO t VALUES (300, 0)")
	c.readUntil(t, s, "300", "300")
	server.Exec(t, database, "TRUNCATE a")
	require.ErrorContains(t, c.readEnd(t, s), "was detached, truncated or rewritten")
	at, err := parseCursor(c.cursor)
	require.NoError(t, err)
	require.NotZero(t, at.origin.partitions)
	_, err = o.Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "was detached, truncated or rewritten")
	at.origin.partitions = 0 // of version 0
	c.cursor = at.append(nil)
	require.NoError(t, c.open(t, o).Close())
}

// Changes that leave documents as they were are logged.
func testRewrites(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	var log bytes.Buffer
	o.log = slog.New(slog.NewTextHandler(&log, nil))
	c := newCopy()
	n := 1
	reopen := func() string {
		t.Helper()
		log.Reset()
		n++
		s, err := o.Open(t.Context(), c.cursor)
		require.NoError(t, err)
		server.Exec(t, database, fmt.Sprintf("INSERT INTO t (id) VALUES (%d)", n))
		c.readUntil(t, s, fmt.Sprint(n), "id")
		require.NoError(t, s.Close())
		return log.String()
	}
	reopen()
	for _, sql := range []string{
		"ALTER TABLE t ADD COLUMN c int DEFAULT 7", "ALTER TABLE t ALTER c TYPE text USING 'x' || c", "ALTER TABLE t ALTER c TYPE text USING c || 'x'",
		"ALTER TABLE t DROP COLUMN n", "ALTER TABLE t RENAME c TO d",
	} {
		require.NotContains(t, reopen(), "level=WARN")
		server.Exec(t, database, sql)
		require.Contains(t, reopen(), `level=WARN msg="the columns of the table have changed`, sql)
	}
}

func testLargeTransaction(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, body text)`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `BEGIN; INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(1, 20000) i;
		SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; DELETE FROM t WHERE id % 2 = 0; COMMIT`)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for batches := 1; len(c.log) < 30_000; batches++ {
		b, err := s.Next(ctx)
		require.NoError(t, err)
		bytes := 0
		for _, r := range b.Records {
			bytes += recordBytes + len(r.Document) + len(r.ID)
		}
		require.Less(t, bytes, maxWaitingBytes+2*batchBytes)
		c.apply(t, b)
		if batches%20 == 5 && batches < 60 { // continue in the middle of the transaction
			require.NoError(t, s.Close())
			s = c.open(t, o)
		}
	}
	require.Len(t, c.documents, 10_000)
	require.Equal(t, "-20000", c.log[29_999])
}

// testRestartInRows changes the table while the rows are read and interrupted: also keys move from the part
// that was not read into the part that was.
func testRestartInRows(t *testing.T, server *postgrestest.Server) {
	random := testseed.Rand(t)
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 5000) i`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	for round := range 12 {
		s, err := o.Open(t.Context(), c.cursor)
		require.NoError(t, err)
		for range 10 {
			id, other := random.IntN(5000)+1, random.IntN(20000)-10000
			server.Exec(t, database, fmt.Sprintf(`UPDATE t SET n = %d WHERE id = %d; DELETE FROM t WHERE id = %d;
				UPDATE t SET id = %d WHERE id = %d AND NOT EXISTS (SELECT FROM t WHERE id = %d); INSERT INTO t VALUES (%d, %d) ON CONFLICT DO NOTHING`,
				round, id, id+1, other, id+2, other, -other, round))
		}
		if round < 11 {
			b, err := s.Next(t.Context())
			require.NoError(t, err)
			b.Records = b.Records[:min(len(b.Records), random.IntN(500)+1)]
			c.apply(t, b)
			require.NoError(t, s.Close())
			continue
		}
		server.Exec(t, database, `INSERT INTO t VALUES (100000, -1)`)
		c.readUntil(t, s, "100000", "-1")
		require.NoError(t, s.Close())
	}
	requireEqualTable(t, server, database, c)
}

// requireEqualTable compares the copy with a table of integers.
func requireEqualTable(t *testing.T, server *postgrestest.Server, database string, c *copied) {
	t.Helper()
	want := map[string]string{}
	for _, row := range server.Query(t, database, "SELECT id, n FROM t") {
		want[row[0]] = fmt.Sprintf(`{"id":%s,"n":%s}`, row[0], row[1])
	}
	require.Equal(t, want, c.documents)
}

// testResumeEverywhere continues behind each record of a series of transactions, and gets exactly
// the rest.
func testResumeEverywhere(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int)`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, `INSERT INTO t VALUES (0, 0)`)
	c.readUntil(t, s, "0", "0")
	first := c.cursor
	server.Exec(t, database, `INSERT INTO t VALUES (1, 1)`)
	server.Exec(t, database, `BEGIN; INSERT INTO t VALUES (2, 2), (3, 3); UPDATE t SET id = 4 WHERE id = 2; COMMIT`)
	server.Exec(t, database, `BEGIN; INSERT INTO t VALUES (9, 9); ROLLBACK`)
	server.Exec(t, database, `DELETE FROM t WHERE id IN (1, 3); UPDATE t SET id = id + 1, n = 5 WHERE id = 4`)
	want := []string{"1", "2", "3", "-2", "4", "-1", "-3", "-4", "5"}
	cursors, got := [][]byte{first}, []string(nil)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for len(got) < len(want) {
		b, err := s.Next(ctx)
		require.NoError(t, err)
		for i := range b.Records {
			cursors = append(cursors, b.AppendCursor(nil, i))
		}
		c := newCopy()
		c.apply(t, b)
		got = append(got, c.log...)
	}
	require.Equal(t, want, got)
	require.NoError(t, s.Close())
	for i, at := range cursors {
		c := &copied{documents: map[string]string{}, cursor: at}
		s, err := o.Open(t.Context(), at)
		require.NoError(t, err)
		c.read(t, s, func() bool { return len(c.log) == len(want)-i })
		require.Equal(t, want[i:], append([]string{}, c.log...))
		require.NoError(t, s.Close())
	}
}

func testStops(t *testing.T, server *postgrestest.Server) {
	for _, c := range []struct{ name, sql, want string }{
		{"truncate", `TRUNCATE t`, "truncated the table"},
		{"key", `ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (id, n); INSERT INTO t VALUES (7, 7)`, "primary key, or the replica identity, changed"},
		{"renamed", `ALTER TABLE t RENAME id TO key; INSERT INTO t VALUES (7, 7)`, "primary key"},
		{"identity", `CREATE UNIQUE INDEX n ON t (n); ALTER TABLE t ALTER n SET NOT NULL; ALTER TABLE t REPLICA IDENTITY USING INDEX n; INSERT INTO t VALUES (7, 7)`, "replica identity"},
		{"removed", `ALTER PUBLICATION stops_removed DROP TABLE t`, "was changed"},
		{"readded", `BEGIN; ALTER PUBLICATION stops_readded DROP TABLE t; ALTER PUBLICATION stops_readded ADD TABLE t; COMMIT`, "was changed"},
		{"dropped", `DROP TABLE t`, "was changed"},
		{"unpublished", `ALTER PUBLICATION stops_unpublished SET (publish = 'insert')`, "was changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)`)
			o := newOpener(t, testURL(server, database, "table", "t", "slot", "stops_"+c.name))
			copied := newCopy()
			s := copied.open(t, o)
			copied.readUntil(t, s, "1", "1")
			server.Exec(t, database, c.sql)
			err := copied.readEnd(t, s)
			require.ErrorContains(t, err, c.want)
			require.NoError(t, s.Close())
			_, err = o.Open(t.Context(), copied.cursor)
			if c.name != "truncate" && c.name != "identity" {
				require.Error(t, err)
			}
		})
	}
}

func testRefuses(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE nokey (id int); CREATE UNLOGGED TABLE u (id int PRIMARY KEY);
		CREATE VIEW v AS SELECT 1 AS id; CREATE TABLE ident (id int PRIMARY KEY); ALTER TABLE ident REPLICA IDENTITY NOTHING;
		CREATE PUBLICATION inserts FOR TABLE t WITH (publish = 'insert'); CREATE PUBLICATION filtered FOR TABLE t WHERE (id > 5);
		CREATE PUBLICATION listed FOR TABLE t (id); CREATE PUBLICATION empty; INSERT INTO t VALUES (1, 1)`)
	server.Exec(t, database, "SELECT pg_create_logical_replication_slot('decoding_slot', 'test_decoding'), pg_create_physical_replication_slot('physical_slot')")
	server.Exec(t, "postgres", "SELECT pg_create_logical_replication_slot('foreign_slot', 'pgoutput')")
	for _, c := range []struct {
		want       string
		parameters []string
	}{
		{"does not exist", []string{"table", "missing"}},
		{"has no primary key", []string{"table", "nokey"}},
		{"unlogged", []string{"table", "u"}},
		{"is not a table", []string{"table", "v"}},
		{"REPLICA IDENTITY DEFAULT", []string{"table", "ident"}},
		{"does not publish all", []string{"table", "t", "publication", "inserts"}},
		{"row filter", []string{"table", "t", "publication", "filtered"}},
		{"row filter or a list of columns", []string{"table", "t", "publication", "listed"}},
		{"does not contain public.t", []string{"table", "t", "publication", "empty"}},
		{`plugin "test_decoding"`, []string{"table", "t", "slot", "decoding_slot"}},
		{"is physical", []string{"table", "t", "slot", "physical_slot"}},
		{"belongs to the database postgres", []string{"table", "t", "slot", "foreign_slot"}},
		{"unrecognized configuration parameter", []string{"table", "t", "tabel", "x"}},
	} {
		_, err := newOpener(t, testURL(server, database, c.parameters...)).Open(t.Context(), nil)
		require.ErrorContains(t, err, c.want)
	}
	server.Exec(t, database, "SELECT pg_drop_replication_slot('decoding_slot'), pg_drop_replication_slot('physical_slot')")
	server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('foreign_slot')")

	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	_, err := o.Open(t.Context(), []byte("DSUC"))
	require.ErrorIs(t, err, errForeignCursor)
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "1", "1")
	server.Exec(t, database, "INSERT INTO t VALUES (2, 2)")
	c.readUntil(t, s, "2", "2")
	require.NoError(t, s.Close())
	refuse := func(want string) {
		t.Helper()
		_, err := o.Open(t.Context(), c.cursor)
		require.ErrorContains(t, err, want)
	}
	other := newOpener(t, testURL(server, database, "table", "t", "slot", "other_slot"))
	_, err = other.Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "through the replication slot "+database)
	_, err = newOpener(t, testURL(server, database, "query", "SELECT 1 AS id", "key", "id")).Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "from a table, not from a query")
	// A slot that was made again after changes, one that another reader has moved, and none.
	drop := "SELECT pg_drop_replication_slot('" + database + "')"
	create := "SELECT pg_create_logical_replication_slot('" + database + "', 'pgoutput')"
	server.Exec(t, database, drop)
	refuse("does not exist any more")
	server.Exec(t, database, "INSERT INTO t VALUES (3, 3)")
	server.Exec(t, database, create)
	refuse("the slot was made again, or another reader has used it")
	server.Exec(t, database, drop)
	server.Exec(t, database, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n int)")
	server.Exec(t, database, "ALTER PUBLICATION "+database+" ADD TABLE t")
	refuse("was dropped and made again")
	// A backup of another cluster.
	at, err := parseCursor(c.cursor)
	require.NoError(t, err)
	at.origin.system++
	c.cursor = at.append(nil)
	refuse("system identifier")
}

func testQuery(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (a int, b text, PRIMARY KEY (a, b)); INSERT INTO t SELECT i / 10, i % 10 FROM generate_series(0, 999) i`)
	o := newOpener(t, testURL(server, database, "query", "SELECT a, b, a * 2 AS twice FROM t WHERE a < 90; ", "key", "b,a"))
	c := newCopy()
	s := c.open(t, o)
	b, err := s.Next(t.Context())
	require.NoError(t, err)
	require.True(t, b.Ends)
	b.Records = b.Records[:100]
	c.apply(t, b)
	require.NoError(t, s.Close())
	s = c.open(t, o)
	require.ErrorIs(t, c.readEnd(t, s), io.EOF)
	require.Len(t, c.log, 900, "each row once")
	require.Len(t, c.documents, 900)
	require.Equal(t, `{"a":12,"b":"3","twice":24}`, c.documents["3,12"])
	n, unit := s.Lag()
	require.Zero(t, n)
	require.Empty(t, unit)
	_, err = newOpener(t, testURL(server, database, "query", "SELECT a, b FROM t", "key", "b")).Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "another key")
	_, err = newOpener(t, testURL(server, database, "query", "SELECT a, b, a * 2 AS twice FROM t", "key", "b,a")).Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "filled by another query")
	at, err := parseCursor(c.cursor)
	require.NoError(t, err)
	at.origin.query = 0 // of version 0
	unknown := newCopy()
	unknown.cursor = at.append(nil)
	require.ErrorIs(t, unknown.readEnd(t, unknown.open(t, o)), io.EOF)

	// A query behind a key does not see changes before it, and logs that.
	var log bytes.Buffer
	o.log = slog.New(slog.NewTextHandler(&log, nil))
	server.Exec(t, database, "INSERT INTO t VALUES (1, '-'), (1, 'z'); DELETE FROM t WHERE a = 2; UPDATE t SET b = '/' WHERE a = 4 AND b = '0'")
	clear(c.documents)
	require.ErrorIs(t, c.readEnd(t, c.open(t, o)), io.EOF)
	require.Equal(t, []string{"z,1"}, c.ids())
	require.Contains(t, log.String(), "level=WARN msg=\"the query is read behind the last key")
	_, err = newOpener(t, testURL(server, database, "table", "t")).Open(t.Context(), c.cursor)
	require.ErrorContains(t, err, "from a query, not from a table")
	for want, query := range map[string]string{"syntax error": "SELEC 1 AS a", `column "a" does not exist`: "SELECT 1 AS b", "read-only": "INSERT INTO t VALUES (1, 'x') RETURNING a"} {
		s := newCopy().open(t, newOpener(t, testURL(server, database, "query", query, "key", "a")))
		_, err := s.Next(t.Context())
		require.Error(t, err, want)
	}
}

// Rows that cannot be documents are reported with their place, and the rest is read.
func testProblems(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id text PRIMARY KEY, body text);
		INSERT INTO t VALUES ('', 'empty'), ('a', 'good'), (repeat('x', 1025), 'long'), (repeat('y', 2000), 'longer'), ('z', repeat('z', 16 << 20))`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	s := newCopy().open(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var problems []string
	for len(problems) < 5 {
		b, err := s.Next(ctx)
		require.NoError(t, err)
		for i, r := range b.Records {
			problem := "none"
			if r.Problem != nil {
				problem = r.Problem.Error()
			}
			problems = append(problems, b.Place(i)+": "+problem)
			require.LessOrEqual(t, len(b.AppendCursor(nil, i)), 4096)
		}
	}
	require.Equal(t, []string{
		"public.t, row 1: the key is empty",
		"public.t, row 2: none",
		"public.t, row 3: the key has 1025 bytes, more than the 1024 of an id",
		"public.t, row 4: the key has 2000 bytes, more than the 1024 of an id",
		"public.t, row 5: the row has 16777236 bytes as JSON, more than the 16777216 of a document",
	}, problems)
}

// While only other tables change, deletes of HeartbeatID move the cursor, and the slot with it.
func testHeartbeat(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (body text); INSERT INTO t VALUES (1)`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	c.readUntil(t, s, "1", "1")
	server.Exec(t, database, `INSERT INTO other SELECT `+wide+` FROM generate_series(1, 2000)`)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	b, err := s.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, HeartbeatID, string(b.Records[0].ID))
	c.apply(t, b)
	s.Durable(c.cursor)
	at, err := parseCursor(c.cursor)
	require.NoError(t, err)
	requireConfirmed(t, server, database, at.lsn.String())
	require.NoError(t, s.Close())
	s = c.open(t, o)
	server.Exec(t, database, "INSERT INTO t VALUES (2)")
	c.readUntil(t, s, "2", "2")
}

// requireConfirmed waits until the slot is at a position.
func requireConfirmed(t *testing.T, server *postgrestest.Server, database, lsn string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return server.Query(t, database, "SELECT confirmed_flush_lsn >= '"+lsn+"' FROM pg_replication_slots WHERE slot_name = current_database()")[0][0] == "t"
	}, testTimeout, 20*time.Millisecond)
}

// The slot is confirmed only up to what Durable reports, also after a lost connection.
func testConfirm(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY)`)
	o := newOpener(t, testURL(server, database, "table", "t", "slot", database))
	c := newCopy()
	s := c.open(t, o)
	server.Exec(t, database, "INSERT INTO t VALUES (1)")
	c.readUntil(t, s, "1", "1")
	first := c.cursor
	server.Exec(t, database, "INSERT INTO t VALUES (2)")
	c.readUntil(t, s, "2", "2")
	s.Durable([]byte("bad"))
	s.Durable(first)
	at, err := parseCursor(first)
	require.NoError(t, err)
	requireConfirmed(t, server, database, at.lsn.String())
	confirmed := func() string {
		return server.Query(t, database, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = current_database()")[0][0]
	}
	require.Equal(t, at.lsn.String(), confirmed())
	require.Eventually(t, func() bool { n, unit := s.Lag(); return n == 0 && unit == "bytes" }, testTimeout, 10*time.Millisecond)

	server.Exec(t, database, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = current_database()")
	server.Exec(t, database, "INSERT INTO t VALUES (3)")
	c.readUntil(t, s, "3", "3")
	server.Exec(t, database, "CREATE TABLE other ()")
	end := server.Query(t, database, "SELECT pg_current_wal_lsn() - '0/0'")[0][0]
	require.Eventually(t, func() bool { // a keepalive came
		reached, err := strconv.ParseUint(end, 10, 64)
		return err == nil && s.(*Source).reached.Load() >= reached
	}, testTimeout, 10*time.Millisecond)
	require.NoError(t, s.Close())
	require.Equal(t, at.lsn.String(), confirmed())
}

// Without Follow the source ends behind the changes committed at Open. The last durable position is
// confirmed by Close.
func testEnds(t *testing.T, server *postgrestest.Server) {
	database := newDatabase(t, server, `CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)`)
	options, err := ParseURL(testURL(server, database, "table", "t", "slot", database))
	require.NoError(t, err)
	o, err := New(options)
	require.NoError(t, err)
	require.True(t, o.Ends())
	c := newCopy()
	for i := range 4 {
		s, err := o.Open(t.Context(), c.cursor)
		require.NoError(t, err)
		server.Exec(t, database, fmt.Sprintf("INSERT INTO t VALUES (%d, 0)", i+2))
		require.ErrorIs(t, c.readEnd(t, s), io.EOF)
		require.Len(t, c.documents, i+1, "the next row is of the next run")
		s.Durable(c.cursor)
		require.NoError(t, s.Close())
		at, err := parseCursor(c.cursor)
		require.NoError(t, err)
		requireConfirmed(t, server, database, at.lsn.String())
	}
}
