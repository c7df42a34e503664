package updater

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
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
		{"in.csv", "a,b\n1,2\n", `%s:1: no id: there is no column "id" among ["a" "b"]`},
		{"in.csv", "id,x\n1,2\n3\n", `%s:3: the row has 1 cells, and there are 2 columns; correct it, or skip invalid records with --skip-bad`},
		{"in.json", `[{"id":"1"},{"id":""}]`, `%s: document 2, line 1: the id in "id" is empty; correct it, or skip invalid records with --skip-bad`},
		{"in.json", `[{"id":"1"}`, `%s:1: behind document 1: the stream ends within the array`},
		{"in.json", "{\n\"id\":\"1\"\n}\n{\n\"id\":7.5}", `%s: document 2, line 4: the id 7.5 in "id" is a number other than a plain integer: write it as a string; correct it,`},
		{"in.json", "{\n\"id\":\"1\"\n}\n]", `%s:4: behind document 1: ']' where { should be`},
		{"in.csv", "id,,x,x\n", `%s:1: column 2 has no name, columns 3 and 4 are both named "x": give the names with the option columns`},
		{"in.csv", "id,x\n1,\xe9\n", `%s:2: the cell in "x": not UTF-8; if the text is in another encoding, give it with the option encoding; correct it,`},
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
	t.Run("objects in a line that have grown", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.json"), a1+a2)
		r.requireResumed([]string{a1, a2}, a)
		write(t, a, a1+a2+" "+a3+"\n")
		r.requireResumed([]string{a1, a2, a3}, a)
		write(t, a, a1+a3+" "+a3+"\n"+b1)
		r.refuses("has changed since", a)
	})
	t.Run("objects behind a bad one that was corrected", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a.json"), a1+`{"id":7.5}`+a3)
		require.Equal(t, cli.ExitFailure, r.resume(a).status)
		write(t, a, a1+a2+a3)
		r.requireResumed([]string{a1, a2, a3}, a)
	})
	t.Run("lines of UTF-16 that have grown", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a"), utf16Of(a1+"\n"))
		r.requireResumed([]string{a1}, a)
		write(t, a, utf16Of(a1+"\n"+a2+"\n"))
		r.requireResumed([]string{a1, a2}, a)
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

// utf16Of returns a text in UTF-16 with a byte order mark.
func utf16Of(text string) string {
	var encoded []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		encoded = binary.LittleEndian.AppendUint16(encoded, unit)
	}
	return string(encoded)
}

// TestJSONFiles: each file is an object, compressed or not, and its name without endings is the id.
func TestJSONFiles(t *testing.T) {
	tree, queueDir := t.TempDir(), filepath.Join(t.TempDir(), "queue")
	require.NoError(t, os.Mkdir(filepath.Join(tree, "a"), 0o700))
	for name, text := range map[string]string{
		"1.json": " {\"x\":1}\n", "a/2.json.gz": gzipped(t, "\ufeff{\"x\":\n2}"), "a/3.json.zst": zstded(t, `{"x":3}`), "4": "{}",
	} {
		write(t, filepath.Join(tree, filepath.FromSlash(name)), text)
	}
	args := []string{"append", "--queue", queueDir, "--format", "json-files", tree}
	ok(t, "", args...)
	require.Equal(t, `{"id":"1","_document":{"x":1}}`+"\n"+`{"id":"4","_document":{}}`+"\n"+
		`{"id":"a/2","_document_base64":"eyJ4IjoKMn0="}`+"\n"+`{"id":"a/3","_document":{"x":3}}`+"\n", dump(t, queueDir))
	ok(t, "", append(args, "--replace")...)
	require.Len(t, contents(t, queueDir), 4, "it was appended again")

	for text, want := range map[string]string{
		"": "5.json: not JSON: it ends where a value should follow", "[{}]": "5.json: the file is not one JSON object",
		"{}{}": "5.json: the file is not one JSON object", `{"a":}`: "5.json: not JSON: byte 6 is '}' where a value should be",
		gzipped(t, "{}")[:20]: "5.json: unexpected EOF",
		gzipped(t, `{"a":"`+strings.Repeat("x", queue.MaxDocumentBytes)+`"}`): "5.json: the record is longer than the limit of 16777216 bytes",
	} {
		write(t, filepath.Join(tree, "5.json"), text)
		r := run(t.Context(), nil, args...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.lastLine(), want)
	}
}

// TestInputAsItComes: tables and lines in other encodings and without a row of names, and ids of several fields.
func TestInputAsItComes(t *testing.T) {
	require.Equal(t, `{"id":"1","x":"é€"}`+"\n", appended(t, "id,x\n1,\xe9\x80\n", "--format", "csv", "--encoding", "windows-1252"))
	require.Equal(t, `{"id":"1","x":"é"}`+"\n", appended(t, utf16Of("id\tx\r\n1\té\r\n"), "--format", "tsv"))
	require.Equal(t, `{"id":"1","x":"2"}`+"\n", appended(t, "1,2\n", "--format", "csv", "--columns", "id,x", "--header=false"))
	require.Equal(t, `{"id":"1","x":"2"}`+"\n", appended(t, "id,id\n1,2\n", "--format", "csv", "--columns", "id,x"))
	require.Equal(t, `{"id":"[1,\"a\"]","_document":{"k":1,"l":"a"}}`+"\n", appended(t, `{"k":1,"l":"a"}`, "--id-template", `[{k},"{l}"]`), "composite keys are readable")
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
		"is not a directory, as --format json-files needs":              {"--format", "json-files", write(t, filepath.Join(dir, "file"), a1)},
		"is not a directory, as --format files needs":                   {"--format", "files", write(t, filepath.Join(dir, "file"), a1)},
		"use --format files or json-files to append each as a document": {dir},
		"is not a regular file, as --follow needs":                      {"--follow", "--format", "files", dir},
		"only uncompressed lines and rows of UTF-8 can be followed":     {"--follow", "--encoding", "latin1", write(t, filepath.Join(dir, "latin1"), a1)},
		"only uncompressed lines and rows of UTF-8":                     {"--follow", write(t, filepath.Join(dir, "a.gz"), gzipped(t, a1))},
		"lines and rows of UTF-8 can be followed; omit":                 {"--follow", write(t, filepath.Join(dir, "a.json"), "["+a1+"]")},
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
