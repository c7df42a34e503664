package updater

import (
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/postgrestest"
)

func TestFromPostgres(t *testing.T) {
	server := postgrestest.Start(t)
	server.Exec(t, "postgres", "CREATE TABLE jobs (id int PRIMARY KEY, title text); INSERT INTO jobs VALUES (17, 'a'), (18, 'b')")
	queueDir := filepath.Join(t.TempDir(), "queue")
	from := func(args ...string) string {
		r := ok(t, "", append([]string{"append", "--queue", queueDir, "--from"}, args...)...)
		require.Contains(t, r.stderr, `"waiting_bytes":`)
		return dump(t, queueDir)
	}
	fromURL := server.URL("postgres") + "&table=jobs"
	want := `{"id":17,"title":"a"}` + "\n" + `{"id":18,"title":"b"}` + "\n"
	require.Equal(t, want, from(fromURL))
	server.Exec(t, "postgres", "UPDATE jobs SET title = 'c' WHERE id = 17; DELETE FROM jobs WHERE id = 18")
	want += `{"id":17,"title":"c"}` + "\n" + `{"id":"18","_delete":true}` + "\n"
	require.Equal(t, want, from(fromURL))

	// The rows of a query.
	rows := filepath.Join(t.TempDir(), "rows")
	ok(t, "", "append", "--queue", rows, "--from",
		server.URL("postgres")+"&key=n&query="+url.QueryEscape("SELECT n FROM generate_series(1, 100) n"))
	require.Contains(t, dump(t, rows), `{"n":100}`)

	server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('docstore_jobs')")
	r := run(t.Context(), nil, "append", "--queue", queueDir, "--from", fromURL)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "replication slot docstore_jobs does not exist any more")
}

func TestPostgresURLsAreChecked(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://me:secret@db/shop?table=a":          "give the password in PGPASSWORD or by passfile=FILE",
		"postgres://me@db/shop?table=a&password=secret": "give the password in PGPASSWORD",
		"postgres://me:sec%ret@db/shop?table=a":         "percent-encode",
		"postgres://db/shop":                            "want a table or a query",
		"postgres://db/shop?table=a&query=SELECT":       "want a table or a query",
		"postgres://db/shop?table=a.b.c":                "want SCHEMA.TABLE",
		"postgres://db/shop?table=a&table=b":            "table twice",
		"postgres://db/shop?table=a&slot=A":             "lower-case letters",
		"postgres://db/shop?table=a&key=b":              "key is for a query",
		"postgres://db/shop?query=SELECT":               "a query needs key=COLUMN",
		"postgres://db/shop?query=SELECT&key=a&slot=b":  "slot and publication are for a table",
		"postgres://db/shop?table=a&sslmode=maybe":      "sslmode",
	} {
		require.Contains(t, fromFailure(t, cli.ExitUsage, "--from", url), want, url)
	}
}
