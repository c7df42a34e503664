package updater

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func zstded(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer w.Close()
	return string(w.EncodeAll([]byte(text), nil))
}

// TestFormats: every format yields the same documents, from a file and from a pipe.
func TestFormats(t *testing.T) {
	const want = `{"id":"1","x":"a"}` + "\n" + `{"id":"2","_delete":true}` + "\n"
	table := "id,x,_delete\n1,a,\n2,,true\n"
	deleted := `{"id":"2","x":"","_delete":true}`
	array := `[{"id":"1","x":"a"}, ` + deleted + "]"
	for _, test := range []struct{ file, text, format string }{
		{"in.ndjson", `{"id":"1","x":"a"}` + "\n" + deleted, "ndjson"},
		{"in.csv", table, "csv"},
		{"in.tsv", strings.ReplaceAll(table, ",", "\t"), "tsv"},
		{"in.json", array, "json"},
		{"in.csv.gz", gzipped(t, table), "csv"},
		{"in.json.zst", zstded(t, array), "json"},
	} {
		t.Run(test.file, func(t *testing.T) {
			dir := t.TempDir()
			ok(t, "", "append", "--queue", filepath.Join(dir, "a"), write(t, filepath.Join(dir, test.file), test.text))
			require.Equal(t, want, dump(t, filepath.Join(dir, "a")))
			ok(t, test.text, "append", "--queue", filepath.Join(dir, "b"), "--format", test.format)
			require.Equal(t, want, dump(t, filepath.Join(dir, "b")))
		})
	}
}

func TestBadFormats(t *testing.T) {
	for _, test := range []struct{ file, text, problem string }{
		{"in.csv", "a,b\n1,2\n", `reading after %s:0: no id: there is no column "id" among ["a" "b"]`},
		{"in.csv", "id,x\n1,2\n3\n", `%s:3: the row has 1 cells, the first row has 2; correct it, or skip invalid records with --skip-bad`},
		{"in.json", `[{"id":"1"},{"id":""}]`, `%s: element 2: the id in "id" is empty; correct it, or skip invalid records with --skip-bad`},
		{"in.json", `[{"id":"1"}`, `reading after %s: element 1: behind element 1: the stream ends within the array`},
		{"in.gz", gzipped(t, `{"id":"1"}`+"\n")[:20], `reading after %s:0: unexpected EOF`},
		{"in.zst", "\x28\xb5\x2f\xfd\x00\xff", `reading after %s:0: zstd: a frame needs a window of more than the limit of 134217728 bytes`},
	} {
		dir := t.TempDir()
		input := write(t, filepath.Join(dir, test.file), test.text)
		r := run(t.Context(), nil, "append", "--queue", filepath.Join(dir, "queue"), input)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.lastLine(), strings.ReplaceAll(test.problem, "%s", input))
	}
}

func TestResumeOfRereadInputs(t *testing.T) {
	t.Run("a table that has grown", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.csv"), "id\n\"1\n\"\n2\n")
		one, two, three := `{"id":"1\n"}`, `{"id":"2"}`, `{"id":"3"}`
		r.requireResumed([]string{one, two}, a)
		r.requireResumed([]string{one, two}, a)
		write(t, a, "id\n\"1\n\"\n2\n3\n")
		r.requireResumed([]string{one, two, three, b1}, a, r.file("b", b1))
	})
	t.Run("a last row that has grown", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.csv"), "id\n1\n2")
		r.requireResumed([]string{`{"id":"1"}`, `{"id":"2"}`}, a)
		write(t, a, "id\n1\n23\n")
		r.refuses("has changed since", a)
	})
	t.Run("an array whose bad element was corrected", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.json"), "["+a1+","+`{"id":7.5}`+","+a3+"]")
		require.Equal(t, cli.ExitFailure, r.resume(a).status)
		write(t, a, "["+a1+","+a2+","+a3+"]")
		r.requireResumed([]string{a1, a2, a3}, a)
	})
	t.Run("compressed lines that have grown", func(t *testing.T) {
		r := newResumer(t)
		first := gzipped(t, a1+"\n")
		a := write(t, filepath.Join(r.dir, "a.gz"), first)
		r.requireResumed([]string{a1}, a)
		write(t, a, first+gzipped(t, a2+"\n"))
		r.requireResumed([]string{a1, a2}, a)
	})
	t.Run("compressed lines that were replaced", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.gz"), gzipped(t, a1+"\n"+a2+"\n"))
		r.requireResumed([]string{a1, a2}, a)
		write(t, a, gzipped(t, a1+"\n"+a3+"\n"))
		r.refuses("has changed since", a)
	})
	t.Run("compressed lines that were cut", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.zst"), zstded(t, a1+"\n"+a2+"\n"))
		r.requireResumed([]string{a1, a2}, a)
		write(t, a, zstded(t, a1+"\n"))
		r.refuses("has changed since", a)
	})
}

// writeTree creates files whose content is their name.
func writeTree(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, "<"+name+">")
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	tree, queueDir := filepath.Join(dir, "tree"), filepath.Join(dir, "queue")
	writeTree(t, tree, "b", "a/b.html", "a.html", "a/empty/c")
	require.NoError(t, os.Symlink("b", filepath.Join(tree, "link")))
	write(t, filepath.Join(tree, "a", "nothing"), "")

	ids := func() (all []string) {
		for _, line := range contents(t, queueDir) {
			all = append(all, strings.Fields(line)[0])
		}
		return all
	}
	args := []string{"append", "--queue", queueDir, "--format", "files", "--resume", tree}
	ok(t, "", args...)
	require.Equal(t, []string{`"a/b.html"`, `"a/empty/c"`, `"a/nothing"`, `"a.html"`, `"b"`}, ids())
	require.Contains(t, dump(t, queueDir), `{"id":"a/b.html","_document_base64":"PGEvYi5odG1sPg=="}`)

	ok(t, "", args...)
	require.Len(t, ids(), 5, "it was appended again")
	writeTree(t, tree, "a/d", "c")
	ok(t, "", args...)
	require.Equal(t, `"c"`, ids()[5], "files after the place are new, files before it are not read")
	require.Len(t, ids(), 6)

	r := run(t.Context(), nil, "append", "--queue", queueDir, "--resume", write(t, filepath.Join(dir, "other"), a1))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "in the middle of "+filepath.Join(tree, "c"))
}

func TestBadDirectories(t *testing.T) {
	dir := t.TempDir()
	queueDir, tree := filepath.Join(dir, "queue"), filepath.Join(dir, "tree")
	for problem, args := range map[string][]string{
		"is not a directory, as --format files needs":            {"--format", "files", write(t, filepath.Join(dir, "file"), a1)},
		"use --format files to append each as a document":        {dir},
		"is not a regular file, as --follow needs":               {"--follow", "--format", "files", dir},
		"only uncompressed lines and rows can be followed":       {"--follow", write(t, filepath.Join(dir, "a.gz"), gzipped(t, a1))},
		"only uncompressed lines and rows can be followed; omit": {"--follow", write(t, filepath.Join(dir, "a.json"), "["+a1+"]")},
	} {
		r := run(t.Context(), nil, append([]string{"append", "--queue", queueDir}, args...)...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.lastLine(), problem)
		require.NoDirExists(t, queueDir)
	}

	long := strings.Repeat("x", 255)
	writeTree(t, tree, "a", strings.Join([]string{"b", long, long, long, long, "x"}, "/"), "c")
	require.NoError(t, os.Truncate(filepath.Join(tree, "c"), 16<<20+1))
	r := run(t.Context(), nil, "append", "--queue", queueDir, "--format", "files", tree)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "/x: its id, the path, has 1027 bytes")
	r = run(t.Context(), nil, "append", "--queue", queueDir, "--format", "files", "--skip-bad", tree)
	require.Equal(t, cli.ExitOK, r.status)
	require.Contains(t, r.stderr, "the document has 16777217 bytes, and at most 16777216 are allowed")
}
