package updater

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/crashtest"
	"docstore/internal/jobs"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/shard"
)

// shardLines returns the lines of all shards, sorted.
func shardLines(t *testing.T, dir string) []string {
	t.Helper()
	layout, err := shard.Read(vfs.OS, dir)
	require.NoError(t, err)
	var all []string
	for i := range layout.Shards {
		all = append(all, strings.SplitAfter(dump(t, layout.Dir(dir, i)), "\n")...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}

func sortedLines(text string) []string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	slices.Sort(lines)
	return lines
}

func TestAppendShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	files, want := writeFiles(t, 3, 500)
	ok(t, "", append([]string{"append", "--queue", dir, "--shards", "4"}, files[0])...)
	ok(t, "", append([]string{"append", "--queue", dir, "--resume", "--shards", "4"}, files[:2]...)...)
	result := ok(t, "", append([]string{"append", "--queue", dir, "--resume"}, files...)...)
	require.Contains(t, result.stderr, "resuming")
	require.Equal(t, sortedLines(want), shardLines(t, dir))
	ok(t, "", append([]string{"append", "--queue", dir, "--resume"}, files...)...)
	require.Equal(t, sortedLines(want), shardLines(t, dir), "nothing is new")

	// Without --resume everything is appended again, also if it is resumed later.
	ok(t, "", append([]string{"append", "--queue", dir}, files[0])...)
	ok(t, "", append([]string{"append", "--queue", dir, "--resume"}, files...)...)
	require.Equal(t, sortedLines(want+want), shardLines(t, dir))

	// A pipe has no cursor and changes none.
	ok(t, `{"id":"piped"}`+"\n", "append", "--queue", dir, "-")
	ok(t, "", append([]string{"append", "--queue", dir, "--resume"}, files...)...)
	require.Equal(t, sortedLines(want+want+`{"id":"piped"}`+"\n"), shardLines(t, dir))
}

func TestAppendRefusesShards(t *testing.T) {
	sharded, plain := filepath.Join(t.TempDir(), "sharded"), filepath.Join(t.TempDir(), "plain")
	ok(t, `{"id":"1"}`, "append", "--queue", sharded, "--shards", "4")
	ok(t, `{"id":"1"}`, "append", "--queue", plain, "--shards", "1")
	require.NoFileExists(t, filepath.Join(plain, shard.LayoutName))
	damaged := t.TempDir()
	write(t, filepath.Join(damaged, shard.LayoutName), "{}")
	for _, test := range []struct {
		want   string
		status int
		args   []string
	}{
		{"must be a power of two from 1 to 1024", cli.ExitUsage, []string{"--queue", sharded, "--shards", "3"}},
		{"must be a power of two from 1 to 1024", cli.ExitUsage, []string{"--queue", sharded, "--shards", "2048"}},
		{"must be a power of two from 1 to 1024", cli.ExitUsage, []string{"--queue", sharded, "--shards", "-4"}},
		{"has 4 shards, and the number never changes; omit --shards", cli.ExitFailure, []string{"--queue", sharded, "--shards", "8"}},
		{"has 4 shards, and the number never changes; omit --shards", cli.ExitFailure, []string{"--queue", sharded, "--shards", "1"}},
		{"has one shard, with 0000000001.seg", cli.ExitFailure, []string{"--queue", plain, "--shards", "4"}},
		{"layout is damaged", cli.ExitFailure, []string{"--queue", damaged}},
	} {
		r := run(t.Context(), strings.NewReader(`{"id":"2"}`), append([]string{"append"}, test.args...)...)
		require.Equal(t, test.status, r.status, "%v: %s", test.args, r.stderr)
		require.Contains(t, r.lastLine(), test.want)
	}
	require.Equal(t, []string{`{"id":"1"}` + "\n"}, shardLines(t, sharded))
	require.Equal(t, `{"id":"1"}`+"\n", dump(t, plain))
}

// TestShardsKilledAtRandom kills append with 64 shards with SIGKILL repeatedly; resuming
// neither loses nor repeats a line. The input is longer in a soak.
func TestShardsKilledAtRandom(t *testing.T) {
	random := testseed.Rand(t)
	files, want := writeFiles(t, 3, crashtest.Share(6_000, 60_000))
	dir := filepath.Join(t.TempDir(), "queue")
	args := append([]string{"append", "--queue", dir, "--shards", "64", "--resume", "--flush-interval", "5ms", "--segment-size", "32KiB", "--codec", "none"}, files...)
	for range crashtest.Share(5, 100) {
		kill(t, random, args)
	}
	ok(t, "", args...)
	require.Equal(t, sortedLines(want), shardLines(t, dir))
}

// kill runs the command and kills it at a random moment.
func kill(t *testing.T, random *rand.Rand, args []string) {
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), asCommand+"=1")
	require.NoError(t, command.Start())
	time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
	_ = command.Process.Kill() // it may have ended already
	_ = command.Wait()
}

// TestCommandsOnShards: commands work on all shards, or refuse and say how to name one.
func TestCommandsOnShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	files, want := writeFiles(t, 1, 300)
	ok(t, "", "append", "--queue", dir, "--shards", "8", files[0])

	require.Contains(t, ok(t, "", "check", "--queue", dir).stdout, "8 segments, 8 blocks, 300 documents, 0 deletes")
	require.Equal(t, sortedLines(want), sortedLines(dump(t, dir)))
	require.Len(t, sortedLines(dump(t, dir, "--limit", "50")), 50)
	for _, flag := range []string{"--segment", "--until"} {
		r := run(t.Context(), nil, "dump", "--queue", dir, flag, "1")
		require.Equal(t, cli.ExitUsage, r.status)
		require.Contains(t, r.lastLine(), "has 8 shards, and each has other segments; give --queue "+shard.Layout{Shards: 8}.Dir(dir, 0))
	}
	var stats struct {
		Shards   int
		Segments []struct{ Shard, Documents int }
		Totals   struct{ Documents, Segments, Sealed int }
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "stats", "--queue", dir, "--json", "--live").stdout), &stats))
	require.Equal(t, 8, stats.Shards)
	require.Len(t, stats.Segments, 8)
	require.Equal(t, 7, stats.Segments[7].Shard)
	require.Equal(t, 300, stats.Totals.Documents)
	require.Equal(t, 8, stats.Totals.Sealed)
	require.Regexp(t, `(?m)^ +7: 1 +sealed`, ok(t, "", "stats", "--queue", dir).stdout)

	require.Contains(t, want, ok(t, "", "get", "0-17", "--queue", dir).stdout)
	ok(t, "", "delete", "0-17", "0-18", "0-19", "--queue", dir)
	require.Len(t, sortedLines(dump(t, dir, "--live")), 297)
	require.Contains(t, ok(t, "", "get", "0-17", "--versions", "--queue", dir).stdout, `"delete":true`)
	r := run(t.Context(), nil, "get", "0-17", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "it was deleted")
	ok(t, "", "append", "--queue", dir, "--resume", files[0])
	require.Contains(t, ok(t, "", "check", "--queue", dir).stdout, "300 documents, 3 deletes", "a delete changes no cursor")

	for _, args := range [][]string{{"truncate", "--to", "1"}, {"repair"}} {
		r := run(t.Context(), nil, append(args, "--queue", dir)...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.lastLine(), "has 8 shards, and "+args[0]+" works on one of them: give --queue "+filepath.Join(dir, "shard-0000"))
	}
	require.Contains(t, ok(t, "", "repair", "--queue", shard.Layout{Shards: 8}.Dir(dir, 3)).stdout, "nothing is damaged")

	damaged := filepath.Join(shard.Layout{Shards: 8}.Dir(dir, 5), "0000000001.seg")
	content, err := os.ReadFile(damaged)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	write(t, damaged, string(content))
	r = run(t.Context(), nil, "check", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, damaged)
	require.NoError(t, os.Remove(damaged))
	r = run(t.Context(), nil, "check", "--queue", dir)
	require.Contains(t, r.stdout, "missing: segment 1 of "+shard.Layout{Shards: 8}.Dir(dir, 5))

	require.NoError(t, os.RemoveAll(shard.Layout{Shards: 8}.Dir(dir, 5)))
	for _, args := range [][]string{{"check"}, {"dump"}, {"stats"}, {"seal"}, {"compact"}, {"get", "0-17"}, {"delete", "0-17"}, {"append", "-"}} {
		r := run(t.Context(), strings.NewReader(`{"id":"x"}`), append(args, "--queue", dir)...)
		require.Equal(t, cli.ExitFailure, r.status, args)
		require.Contains(t, r.lastLine(), shard.Layout{Shards: 8}.Dir(dir, 5), args)
		require.Contains(t, r.lastLine(), "restore it", args)
	}
}

// TestSealShards seals the segments that a killed updater has left open.
func TestSealShards(t *testing.T) {
	random := testseed.Rand(t)
	files, want := writeFiles(t, 1, 20_000)
	dir := filepath.Join(t.TempDir(), "queue")
	open := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*", "*.open"))
		require.NoError(t, err)
		return names
	}
	args := []string{"append", "--queue", dir, "--shards", "4", "--resume", "--flush-every", "10", files[0]}
	for len(open()) == 0 {
		kill(t, random, args)
	}
	ok(t, "", "seal", "--queue", dir)
	require.Empty(t, open())
	ok(t, "", args...)
	require.Equal(t, sortedLines(want), shardLines(t, dir))
}

// TestEraseInShards: no file has an erased document, also not the shared dictionary or the
// dictionaries in the segments of other shards.
func TestEraseInShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	const secret = "the private address of one customer is 17 Long Street, 12345 Town"
	var input strings.Builder
	postings := jobs.New(3)
	for n := 0; input.Len() < 12<<20; n++ {
		document := string(postings.Next())
		text, _ := json.Marshal(secret)
		fmt.Fprintf(&input, `{"id":"job-%d","secret":%s,"posting":%s}`+"\n", n, text, document)
	}
	ok(t, input.String(), "append", "--queue", dir, "--shards", "8", "--flush-interval", "0")
	require.FileExists(t, filepath.Join(dir, "DICTIONARY"))
	require.NotEmpty(t, filesContaining(t, dir, "private address"), "the test is void")
	// Later versions without the secret.
	ok(t, strings.ReplaceAll(input.String(), secret, ""), "append", "--queue", dir)
	ok(t, "", "compact", "--queue", dir, "--erase-deleted-older-than", "0s", "--delete-after", "0s", "--quiet")
	require.Empty(t, filesContaining(t, dir, "private address"))
	require.NoFileExists(t, filepath.Join(dir, "DICTIONARY"))
	require.Contains(t, ok(t, "", "check", "--queue", dir, "--quiet").stdout, " verified")
	require.NotContains(t, ok(t, "", "get", "job-5", "--queue", dir).stdout, secret)
}

// filesContaining returns the files below a directory with the text, stored as it is.
func filesContaining(t *testing.T, dir, text string) (names []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) {
			names = append(names, path)
		}
		return err
	}))
	return names
}
