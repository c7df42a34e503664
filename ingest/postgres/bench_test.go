package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/internal/postgrestest"
	"docstore/queue"
)

// benchRows is the number of rows of 0.9 KB in a benchmark.
const benchRows = 200_000

// body is an expression for 800 bytes that compress like text.
const body = `(SELECT string_agg(substr(md5((i % 1000 + j)::text), 1, 10), ' ') FROM generate_series(1, 73) j)`

// appendAll appends n records to a queue.
func appendAll(b *testing.B, w *queue.Writer, s ingest.Source, n int) (bytes int64) {
	for cursor := []byte(nil); n > 0; {
		batch, err := s.Next(b.Context())
		require.NoError(b, err)
		for i, r := range batch.Records {
			require.NoError(b, r.Problem)
			cursor = batch.AppendCursor(cursor[:0], i)
			_, err := w.Put(queue.Record{ID: r.ID, Document: r.Document, Delete: r.Delete, Cursor: cursor})
			require.NoError(b, err)
			bytes += int64(len(r.Document))
		}
		n -= len(batch.Records)
	}
	require.NoError(b, w.Flush())
	return bytes
}

// BenchmarkSource appends a table, then its changes in transactions of 1,000 and of 1, to a
// queue. The server is included in the time, but not its work for the changes themselves.
func BenchmarkSource(b *testing.B) {
	server := postgrestest.Start(b, "max_wal_size=4GB")
	server.Exec(b, "postgres", fmt.Sprintf(`CREATE TABLE t (id bigint PRIMARY KEY, title text, n int, at timestamptz, body text);
		INSERT INTO t SELECT i, 'title ' || i, 0, now(), %s FROM generate_series(1, %d) i; ANALYZE t; CHECKPOINT`, body, benchRows))
	o := newOpener(b, testURL(server, "postgres", "table", "t"))
	w, err := queue.OpenWriter(b.TempDir(), nil)
	require.NoError(b, err)
	defer w.Close()
	run := func(name string, records int, cursor func() []byte, prepare func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				prepare()
				b.StartTimer()
				s, err := o.Open(b.Context(), cursor())
				require.NoError(b, err)
				b.SetBytes(appendAll(b, w, s, records))
				require.NoError(b, s.Close())
			}
			b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
	run("rows", benchRows, func() []byte { return nil }, func() {})
	run("changes/transaction=1000", benchRows/4, w.Cursor, func() {
		server.Exec(b, "postgres", fmt.Sprintf(`DO $$ BEGIN FOR k IN 0..%d LOOP UPDATE t SET n = n + 1 WHERE id > k * 1000 AND id <= (k + 1) * 1000; COMMIT; END LOOP; END $$`, benchRows/4/1000-1))
	})
	run("changes/transaction=1", benchRows/10, w.Cursor, func() {
		server.Exec(b, "postgres", fmt.Sprintf(`DO $$ BEGIN FOR k IN 1..%d LOOP UPDATE t SET n = n + 1 WHERE id = k; COMMIT; END LOOP; END $$`, benchRows/10))
	})
}
