package updater

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// versions returns documents of a version as lines.
func versions(from, to, version int) string { return lines(from, to, fmt.Sprintf(`,"v":%d`, version)) }

// live returns the newest documents of a shard by id.
func live(t *testing.T, shardDir string) map[string]string {
	t.Helper()
	documents := map[string]string{}
	for line := range strings.Lines(dump(t, shardDir)) {
		var d struct {
			ID     string `json:"id"`
			Delete bool   `json:"_delete"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &d), line)
		if delete(documents, d.ID); !d.Delete {
			documents[d.ID] = line
		}
	}
	return documents
}

// liveLines returns the newest documents of all shards as sorted lines.
func liveLines(t *testing.T, dir string) (all []string) {
	t.Helper()
	layout, err := shard.Read(vfs.OS, dir)
	require.NoError(t, err)
	for i := range layout.Shards {
		for _, line := range live(t, layout.Dir(dir, i)) {
			all = append(all, line)
		}
	}
	return sortedLines(strings.Join(all, ""))
}

// --dry-run --replace prints the number of changes, and makes none.
func TestCountReplaced(t *testing.T) {
	queueDir := filepath.Join(t.TempDir(), "queue")
	args := []string{"append", "--queue", queueDir, "--replace", "--dry-run"}
	r := ok(t, versions(0, 10, 1), args...)
	require.Equal(t, "would append 10 new and 0 changed documents, skip 0 equal ones, and delete 0\n", r.stdout)
	require.NoDirExists(t, queueDir)

	ok(t, versions(0, 10, 1), "append", "--queue", queueDir)
	before := dump(t, queueDir)
	r = ok(t, versions(1, 4, 2)+versions(4, 12, 1), args...)
	require.Equal(t, "would append 2 new and 3 changed documents, skip 6 equal ones, and delete 1\n", r.stdout)
	r = run(t.Context(), strings.NewReader(versions(0, 5, 1)), args...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "would append 0 new and 0 changed documents, skip 5 equal ones, and delete 5\n", r.stdout)
	require.Contains(t, r.lastLine(), "--max-deletes 50")
	require.Equal(t, before, dump(t, queueDir))
	r = run(t.Context(), strings.NewReader("{"), args...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Empty(t, r.stdout)
}

// The queue has the documents of the input, whatever its source and format, and a repetition
// appends nothing.
func TestReplace(t *testing.T) {
	root := t.TempDir()
	first, second := versions(0, 40, 1), versions(2, 20, 1)+versions(20, 42, 2)
	name := func(n string) string { return filepath.Join(root, n) }
	write(t, name("1.ndjson"), first)
	write(t, name("2.ndjson"), second)
	write(t, name("2.ndjson.gz"), gzipped(t, second))
	write(t, name("2.json"), "["+strings.ReplaceAll(strings.TrimSpace(second), "\n", ",")+"]")
	for input, args := range map[string][]string{
		"a file":         {name("2.ndjson")},
		"gzip":           {name("2.ndjson.gz")},
		"an array":       {name("2.json")},
		"standard input": {},
		"a pattern":      {"--from", "file://" + root + "/2.ndjson"},
	} {
		for _, shards := range []string{"1", "4"} {
			t.Run(input+" "+shards, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "queue")
				replace := func(args ...string) string {
					return ok(t, second, append([]string{"append", "--queue", dir, "--replace"}, args...)...).stderr
				}
				require.Contains(t, replace("--shards", shards, name("1.ndjson")), `"equal":0,"changed":0,"added":40,"deleted":0`)
				require.Contains(t, replace(args...), `"equal":18,"changed":20,"added":2,"deleted":2`)
				require.Equal(t, sortedLines(second), liveLines(t, dir))
				require.Contains(t, replace(args...), `"equal":40,"changed":0,"added":0,"deleted":0`)
				require.Contains(t, replace("--quiet", name("1.ndjson")), "")
				require.Equal(t, sortedLines(first), liveLines(t, dir))
			})
		}
	}
}

// A directory, and the other formats, are states too.
func TestReplaceFormats(t *testing.T) {
	root := t.TempDir()
	pages, dir := filepath.Join(root, "pages"), filepath.Join(root, "queue")
	require.NoError(t, os.Mkdir(pages, 0o700))
	for i := range 20 {
		write(t, filepath.Join(pages, fmt.Sprint("page-", i)), "text")
	}
	ok(t, "", "append", "--queue", dir, "--replace", "--format", "files", pages)
	require.NoError(t, os.Remove(filepath.Join(pages, "page-3")))
	write(t, filepath.Join(pages, "page-4"), "another text")
	r := ok(t, "", "append", "--queue", dir, "--replace", "--format", "files", pages)
	require.Contains(t, r.stderr, `"equal":18,"changed":1,"added":0,"deleted":1`)

	dir = filepath.Join(root, "table")
	ok(t, "sku,price,note\na,1,x\nb,2,y\n", "append", "--queue", dir, "--replace", "--format", "csv", "--id", "sku", "--drop", "note")
	r = ok(t, "sku,price,note\na,1,z\nb,3,y\n", "append", "--queue", dir, "--replace", "--format", "csv", "--id", "sku", "--drop", "note")
	require.Contains(t, r.stderr, `"equal":1,"changed":1,"added":0,"deleted":0`, "a field that is dropped is no change")
}

// After each error the queue is unchanged, and the message says what to do.
func TestReplaceRefuses(t *testing.T) {
	root := t.TempDir()
	dir, input := filepath.Join(root, "queue"), filepath.Join(root, "input")
	write(t, input, versions(0, 100, 1))
	ok(t, "", "append", "--queue", dir, "--replace", input)
	before := dump(t, dir)
	for name, c := range map[string]struct{ content, want string }{
		"empty": {"", "docstore-updater: " + input + ": the input has no documents; 100 of the 100 in the queue would be deleted (100 %), and at most 10 % may be; " +
			"nothing was changed. If the input is complete, allow it with --max-deletes 100"},
		"cut short": {versions(0, 89, 1), "docstore-updater: " + input + ": the input has 89 documents; 11 of the 100 in the queue would be deleted (11 %), and at most 10 % may be; " +
			"nothing was changed. If the input is complete, allow it with --max-deletes 11"},
		"invalid":     {versions(0, 100, 2) + "not JSON\n", input + ":101: not JSON"},
		"twice":       {versions(0, 100, 2) + versions(7, 8, 3), input + `:101: the id "7" occurs twice; a whole state has one document of each id; nothing was changed`},
		"added twice": {versions(0, 102, 2) + versions(101, 102, 3), input + `:103: the id "101" occurs twice`},
		"a delete":    {versions(1, 100, 2) + `{"id":"0","_delete":true}`, input + `:100: a delete of "0"; a whole state has documents only: leave its line out; nothing was changed`},
		"cut gzip":    {gzipped(t, versions(0, 100, 2))[:100], "; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, input, c.content)
			r := run(t.Context(), nil, "append", "--queue", dir, "--replace", "--quiet", input)
			require.Equal(t, cli.ExitFailure, r.status)
			require.Contains(t, r.lastLine(), c.want)
			require.Equal(t, before, dump(t, dir))
		})
	}

	missing := filepath.Join(root, "missing")
	r := run(t.Context(), nil, "append", "--queue", dir, "--replace", "--quiet", missing)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), missing)

	write(t, input, versions(0, 90, 1))
	w, err := shardset.Open(dir, nil)
	require.NoError(t, err)
	r = run(t.Context(), nil, "append", "--queue", dir, "--replace", "--quiet", input)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "wait for it to end, or stop it")
	require.NoError(t, w.Close())
	require.Equal(t, before, dump(t, dir))

	ok(t, "", "append", "--queue", dir, "--replace", "--quiet", input)
	require.Len(t, live(t, dir), 90, "10 percent may be deleted")
	write(t, input, "")
	ok(t, "", "append", "--queue", dir, "--replace", "--quiet", "--max-deletes", "100", input)
	ok(t, "", "append", "--queue", dir, "--replace", "--quiet", input)
	require.Empty(t, live(t, dir))
}

// Each run is one manifest, which is announced, also if it deletes more than it appends. A run that
// changes nothing, and one that fails, publish nothing.
func TestReplacePublishes(t *testing.T) {
	for _, shards := range []string{"1", "4"} {
		root := t.TempDir()
		input, url := filepath.Join(root, "input"), "file://"+filepath.Join(root, "bucket")
		replace := func(content string) result {
			write(t, input, content)
			return run(t.Context(), nil, "append", "--queue", filepath.Join(root, "queue"), "--shards", shards, "--replace",
				"--publish", url, "--announce", "--quiet", input)
		}
		requireNewest := func(number int) {
			manifests := ok(t, "", "manifests", "--bucket", url, "--json").stdout
			require.Equal(t, number, strings.Count(manifests, `"number":`), manifests)
			require.Regexp(t, fmt.Sprintf(`"number":%d,.*"announced":true`, number), manifests)
		}
		r := replace(versions(0, 100, 1))
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
		requireNewest(1)
		r = replace(versions(0, 95, 1))
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
		requireNewest(2)
		require.Equal(t, cli.ExitOK, replace(versions(0, 95, 1)).status)
		requireNewest(2)
		require.Equal(t, cli.ExitFailure, replace(versions(0, 5, 2)).status)
		requireNewest(2)
		restored := filepath.Join(root, "restored")
		ok(t, "", "restore", "--bucket", url, "--queue", restored, "--quiet")
		require.Equal(t, sortedLines(versions(0, 95, 1)), liveLines(t, restored))
	}
}

// replacedByKills is the number of documents of each version of TestReplaceSurvivesKills.
const replacedByKills = 4000

// TestReplaceSurvivesKills kills the updater at random moments. Each shard then has the state of
// before or the next one, also after the next writer has opened the queue.
func TestReplaceSurvivesKills(t *testing.T) {
	random := testseed.Rand(t)
	for _, shards := range []string{"1", "4"} {
		t.Run(shards, func(t *testing.T) {
			root := t.TempDir()
			dir, input := filepath.Join(root, "queue"), filepath.Join(root, "input")
			write(t, input, versions(0, replacedByKills, 0))
			ok(t, "", "append", "--queue", dir, "--replace", "--shards", shards, "--codec", "none", "--quiet", input)
			killed, took := 0, 400*time.Millisecond
			for version := 1; version <= crashtest.Share(4, 100); version++ {
				next := versions(version*10, replacedByKills+version*10, version)
				write(t, input, next)
				for {
					command := exec.Command(os.Args[0], "append", "--queue", dir, "--replace", "--codec", "none", "--quiet", input)
					command.Env = append(os.Environ(), asCommand+"=1")
					var stderr bytes.Buffer
					command.Stderr = &stderr
					started := time.Now()
					require.NoError(t, command.Start())
					timer := time.AfterFunc(time.Duration(random.Int64N(int64(took))), func() { _ = command.Process.Kill() })
					err := command.Wait()
					if timer.Stop() || err == nil {
						require.NoError(t, err, stderr.String())
						took = max(time.Since(started), 20*time.Millisecond)
						break
					}
					killed++
					ok(t, "", "seal", "--queue", dir)
					requireWholeShards(t, dir, version)
					took += took / 4 // it is also repeated until the end
				}
				require.Equal(t, sortedLines(next), liveLines(t, dir))
			}
			t.Logf("%d runs were killed", killed)
		})
	}
}

// requireWholeShards checks that each shard has the documents of a version, or of the one before.
func requireWholeShards(t *testing.T, dir string, version int) {
	t.Helper()
	layout, err := shard.Read(vfs.OS, dir)
	require.NoError(t, err)
	for i := range layout.Shards {
		has := live(t, layout.Dir(dir, i))
		states := make([]map[string]string, 2)
		for n := range states {
			v := version - n
			states[n] = map[string]string{}
			for line := range strings.Lines(versions(v*10, replacedByKills+v*10, v)) {
				if id := strings.Split(line, `"`)[3]; layout.ShardString(id) == i {
					states[n][id] = line
				}
			}
		}
		require.True(t, maps.Equal(states[0], has) || maps.Equal(states[1], has), "shard %d has %d documents of several versions", i, len(has))
	}
}
