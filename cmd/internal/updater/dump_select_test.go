package updater

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/testseed"
	"docstore/queue"
)

func TestDumpSelects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	add := func(lines ...string) { ok(t, strings.Join(lines, "\n"), "append", "--queue", dir, "--quiet") }
	a1, b1, a2, old, c1 := `{"id":"a","v":1}`, `{"id":"b-1","v":1}`, `{"id":"a","v":2}`, `{"id":"b-old","_expires":"2020-01-01T00:00:00Z"}`, `{"id":"b-2","v":1}`
	add(a1, b1)
	add(a2, old, c1)
	ok(t, "", "delete", "b-1", "--queue", dir)
	deleted := `{"id":"b-1","_delete":true}`
	for flags, want := range map[string][]string{
		"":                                {a1, b1, a2, old, c1, deleted},
		"--id a":                          {a1, a2},
		"--id a --id b-2":                 {a1, a2, c1},
		"--id none":                       {},
		"--prefix b-":                     {b1, old, c1, deleted},
		"--segment 2":                     {a2, old, c1},
		"--segment 2 --prefix b-":         {old, c1},
		"--limit 2":                       {a1, b1},
		"--limit 100":                     {a1, b1, a2, old, c1, deleted},
		"--until 1":                       {a1, b1},
		"--until 2":                       {a1, b1, a2, old, c1},
		"--until 1/99999999/0":            {a1, b1},
		"--live":                          {a2, c1},
		"--live --until 1":                {a1, b1},
		"--live --until 2 --prefix b-":    {b1, c1},
		"--live --segment 1":              {},
		"--live --segment 1 --until 2":    {b1},
		"--live --limit 1":                {a2},
		"--live --id a --until 1 --id zz": {a1},
	} {
		got := dump(t, dir, strings.Fields(flags)...)
		require.Equal(t, want, slices.DeleteFunc(strings.Split(got, "\n"), func(line string) bool { return line == "" }), flags)
	}

	long := strings.Repeat("x", queue.MaxIDBytes+1)
	for _, c := range []struct {
		flags, problem string
		status         int
	}{
		{"--id a --prefix b", "--id and --prefix exclude each other", cli.ExitUsage},
		{"--id=", "--id: the id \"\" has 0 bytes", cli.ExitUsage},
		{"--id " + long, "has 1025 bytes", cli.ExitUsage},
		{"--prefix " + long, "--prefix has 1025 bytes", cli.ExitUsage},
		{"--limit -1", "--limit -1: must not be negative", cli.ExitUsage},
		{"--until x", "--until x: give a segment, such as 8, or a position", cli.ExitUsage},
		{"--until 1/2", "--until 1/2: give a segment", cli.ExitUsage},
		{"--segment -1", "--segment", cli.ExitUsage},
		{"--segment 4", "--segment 4: the queue has no such segment; see docstore-updater stats", cli.ExitFailure},
	} {
		r := run(t.Context(), nil, append([]string{"dump", "--queue", dir}, strings.Fields(c.flags)...)...)
		require.Equal(t, c.status, r.status, c.flags)
		require.Contains(t, r.lastLine(), c.problem)
		require.Empty(t, r.stdout)
	}
}

// A dump of the live documents at a position, in any number of passes, restores the
// documents that the queue had there.
// Canaries are left out, unless they are asked for, and have no influence on the id field.
func TestDumpLeavesCanariesOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	canary, document := `{"id":"docstore-canary","sent":"2026-11-21T10:00:00Z"}`, `{"sku":"a"}`
	ok(t, canary, "append", "--queue", dir, "--quiet")
	ok(t, document, "append", "--queue", dir, "--quiet", "--id-field", "sku")
	require.Equal(t, document+"\n", dump(t, dir))
	require.Equal(t, document+"\n", dump(t, dir, "--live"))
	require.Equal(t, canary+"\n", dump(t, dir, "--id", "docstore-canary", "--id-field", "id"))
	require.Equal(t, canary+"\n", dump(t, dir, "--prefix", "docstore-canary", "--live", "--id-field", "id"))
}

func TestDumpLiveModel(t *testing.T) {
	rng := testseed.Rand(t)
	dir := t.TempDir()
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{SegmentBytes: 4 << 10})
	require.NoError(t, err)
	type moment struct {
		at        queue.Address
		documents map[string]string
	}
	now := time.Now()
	model := map[string]string{}
	var moments []moment
	for i := range 1 + rng.IntN(400) {
		id := fmt.Sprint("id-", rng.IntN(60))
		var at queue.Address
		switch rng.IntN(10) {
		case 0, 1:
			at, err = w.Delete([]byte(id))
			delete(model, id)
		case 2:
			at, err = w.Put(queue.Record{ID: []byte(id), Document: []byte("{}"), Expires: now.Add(-time.Minute)})
			delete(model, id)
		default:
			document := fmt.Sprintf(`{"id":%q,"n":%d}`, id, i)
			at, err = w.Append([]byte(id), []byte(document))
			model[id] = document
		}
		require.NoError(t, err)
		if rng.IntN(20) == 0 {
			require.NoError(t, w.Flush())
		}
		at.Index++ // the first address after the entry
		moments = append(moments, moment{at, maps.Clone(model)})
	}
	require.NoError(t, w.Close())
	for range 5 {
		m := moments[rng.IntN(len(moments))]
		var stdout, stderr bytes.Buffer
		env := &cli.Env{Stdout: &stdout, Stderr: &stderr, Now: time.Now}
		env.Log = env.Quiet().Log
		d := dumper{env: env, dir: dir, idField: "id", controlFields: true, liveMemory: int64(100 + rng.IntN(30_000))}
		d.live, d.until = true, m.at.String()
		require.NoError(t, d.check())
		require.NoError(t, d.run(t.Context(), true))
		var want []string
		for _, document := range m.documents {
			want = append(want, document)
		}
		got := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
		if stdout.Len() == 0 {
			got = nil
		}
		require.ElementsMatch(t, want, got)
	}
}
