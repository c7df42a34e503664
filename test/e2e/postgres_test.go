package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/postgrestest"
	"docstore/internal/testprocess"
	"docstore/internal/testseed"
	"docstore/queue/shard"
)

// postgresTransactions is the minimum of transactions of TestPostgresKilled.
const postgresTransactions = 10_000

// TestPostgresKilled kills the updater with SIGKILL, and shuts the database down at once, at
// random moments, while the updater copies a table that 10,000 transactions change. In the end
// the queue, of one or several shards, has the rows of the table.
func TestPostgresKilled(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	shards := []int{1, 4}[random.IntN(2)]
	t.Logf("%d shards", shards)
	server := postgrestest.Start(t, "wal_sender_timeout=5s")
	server.Exec(t, "postgres", `CREATE TABLE t (id int PRIMARY KEY, n int, body text);
		INSERT INTO t SELECT i, 0, repeat('x', i % 100) FROM generate_series(1, 20000) i`)
	queue := filepath.Join(t.TempDir(), "queue")
	once := []string{"append", "--queue", queue, "--segment-size", "1MiB", "--flush-interval", "20ms",
		"--shards", fmt.Sprint(shards), "--from", server.URL("postgres") + "&table=t"}
	follow := append(slices.Clone(once), "--follow")

	writing, enough := make(chan int, 1), make(chan struct{})
	go func(seed uint64) { writing <- runTransactions(t.Context(), server, seed, enough) }(random.Uint64())
	updater := start(t, nil, "docstore-updater", follow...)
	for i := range crashtest.Share(10, 200) {
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
		if i%3 == 2 {
			server.Kill()
			server.Restart(t)
		} else {
			updater.Kill()
		}
		tally.Case()
		select {
		case <-updater.Exited: // killed, or started while the database was away
			requireTemporary(t, updater)
			updater = start(t, nil, "docstore-updater", follow...)
		default:
		}
	}
	close(enough)
	t.Logf("%d transactions", <-writing)
	updater.Kill()
	start(t, nil, "docstore-updater", once...).WaitExit(t)
	want := map[string]string{}
	for _, row := range server.Query(t, "postgres", `SELECT id, n, body FROM t`) {
		want[row[0]] = fmt.Sprintf(`{"id":%s,"n":%s,"body":%q}`, row[0], row[1], row[2])
	}
	require.Equal(t, want, liveDocuments(t, queue, shards))

	updater = start(t, nil, "docstore-updater", follow...)
	server.Exec(t, "postgres", "INSERT INTO t VALUES (30000, 0, 'last')")
	require.Eventually(t, func() bool { return liveDocuments(t, queue, shards)["30000"] != "" }, time.Minute, 50*time.Millisecond)
	updater.Stop(t)
}

// requireTemporary checks that an updater that ended was killed or could not connect.
func requireTemporary(t *testing.T, updater *testprocess.Command) {
	t.Helper()
	if updater.ProcessState.Exited() {
		require.Regexp(t, "failed to connect|unexpected EOF|connection reset|conn closed|SQLSTATE 57P0", updater.Output.String())
	}
}

// runTransactions runs random transactions, at least postgresTransactions and until enough is
// closed, and returns their number. Those that the server interrupts are not repeated.
func runTransactions(ctx context.Context, server *postgrestest.Server, seed uint64, enough <-chan struct{}) int {
	random := rand.New(rand.NewPCG(seed, 1))
	for n := 0; ; {
		conn, err := pgconn.Connect(ctx, server.URL("postgres"))
		if ctx.Err() != nil {
			return n
		}
		for ; err == nil; n++ {
			select {
			case <-enough:
				if n >= postgresTransactions {
					_ = conn.Close(ctx)
					return n
				}
			default:
			}
			var sql strings.Builder
			sql.WriteString("BEGIN")
			for range 1 + random.IntN(4) {
				fmt.Fprintf(&sql, "; "+transactionSteps[random.IntN(len(transactionSteps))], random.IntN(25_000), random.IntN(25_000))
			}
			sql.WriteString([]string{"; COMMIT", "; COMMIT", "; COMMIT", "; ROLLBACK"}[random.IntN(4)])
			_, err = conn.Exec(ctx, sql.String()).ReadAll()
		}
		if ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) // the server restarts
		}
	}
}

var transactionSteps = []string{
	"INSERT INTO t VALUES (%[1]d, %[2]d, 'new') ON CONFLICT (id) DO UPDATE SET n = t.n + 1",
	"UPDATE t SET n = %[2]d WHERE id = %[1]d",
	"UPDATE t SET n = n + 1, body = repeat('y', id %% 50) WHERE id BETWEEN %[1]d AND %[1]d + 5",
	"DELETE FROM t WHERE id = %[1]d",
	"UPDATE t SET id = %[2]d WHERE id = %[1]d AND NOT EXISTS (SELECT FROM t WHERE id = %[2]d)",
	"SAVEPOINT s; DELETE FROM t WHERE id BETWEEN %[1]d AND %[2]d AND id %% 100 = 0; ROLLBACK TO s",
}

// liveDocuments returns the last document of each id in a queue of documents with integer ids,
// without deleted ones.
func liveDocuments(t *testing.T, queue string, shards int) map[string]string {
	t.Helper()
	var lines [][]byte
	for i := range shards {
		lines = append(lines, dump(t, shard.Layout{Shards: shards}.Dir(queue, i))...)
	}
	documents := map[string]string{}
	for _, line := range lines {
		var entry struct {
			ID     any
			Delete bool `json:"_delete"`
		}
		require.NoError(t, json.Unmarshal(line, &entry))
		id := fmt.Sprint(entry.ID)
		if entry.Delete {
			delete(documents, id)
		} else {
			documents[id] = strings.TrimSuffix(string(line), "\n")
		}
	}
	return documents
}
