package updater

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// fromFailure runs append --from and returns the last line of its error.
func fromFailure(t *testing.T, status int, args ...string) string {
	t.Helper()
	queueDir := filepath.Join(t.TempDir(), "queue")
	r := run(t.Context(), strings.NewReader(""), append([]string{"append", "--queue", queueDir}, args...)...)
	require.Equal(t, status, r.status, r.stderr)
	require.NoDirExists(t, queueDir)
	return r.lastLine()
}

func TestMissingSources(t *testing.T) {
	dir := t.TempDir()
	require.Contains(t, fromFailure(t, cli.ExitFailure, "--from", filepath.Join(dir, "none.yaml")), "no such file")
	require.Contains(t, fromFailure(t, cli.ExitFailure, "--from", "file://"+dir+"/none/*"), "no such file")
}

func TestFileOfSourcesIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "is empty",
		"- a":                                    `:1: want lines of the form "key: value"`,
		"sources: [":                             "yaml: ",
		"sources: 1":                             ":1: want a list of sources",
		"sources:\n- x":                          `:2: want lines of the form "key: value"`,
		"sources:\n- name: a":                    ":2: a source needs name and from",
		"sources:\n- name: a\n  uri: b":          `:3: unknown key "uri"; want name, from, format, id`,
		"sources:\n- name: [a]":                  ":2: want a name",
		"sources:\n- name: a\n  from:":           ":3: want a URL",
		"source: []":                             `:1: unknown key "source"; want sources or removed`,
		"removed: []\nremoved: []":               `:2: duplicate key "removed"`,
		"removed: x":                             ":1: want a list of names",
		"sources: []":                            "want 1 to 64 sources, not 0",
		"sources:\n- {name: a, from: 'ftp://x'}": ":2: unknown kind of source ftp://",
		"sources:\n- {name: a, from: 'file:///*'}\n- {name: a, from: 'file:///*'}":       `two sources have the name "a"`,
		"sources:\n- {name: a, from: 'file:///*'}\nremoved: [a]":                         `source "a" is among the removed sources`,
		"sources:\n- {name: " + strings.Repeat("x", 65) + ", from: 'file:///etc/hosts'}": "has 1 to 64 bytes, not 65",
	} {
		path := write(t, filepath.Join(t.TempDir(), "from.yaml"), strings.ReplaceAll(text, "file:///*", "file:///etc/hosts"))
		r := run(t.Context(), nil, "append", "--queue", filepath.Join(t.TempDir(), "queue"), "--from", path)
		require.NotEqual(t, cli.ExitOK, r.status)
		require.Contains(t, r.lastLine(), want, text)
		require.Contains(t, r.lastLine(), path)
	}
	for option, want := range map[string]string{
		"format: xml":                            `:4: unknown format "xml"`,
		"format: files":                          `:4: unknown format "files"`,
		"id: ''":                                 ":4: want a field",
		"id: a..b":                               `:2: id: "a..b" is not the path of a field`,
		"id-template: '{a'":                      `:2: id-template: "{a" has a { without a }`,
		"id: a\n  id-template: '{b}'":            ":2: id-field, id and id-template contradict each other",
		"keep: a":                                ":4: want a list of fields",
		"keep: [a]\n  drop: [b]":                 ":2: keep, drop, rename: fields are kept and dropped",
		"rename: a=b":                            `:4: want fields in the form "old: new"`,
		"rename: {a: c, b: c}":                   `:2: keep, drop, rename: two fields are renamed to "c"`,
		"rename: {a: b}\n  drop: [a]":            `field "a" is renamed, but is not kept`,
		"delimiter: ab":                          ":2: delimiter: ab: write one character",
		"delimiter: ;\n  format: tsv":            ":2: delimiter: only csv has a delimiter, not tsv",
		"encoding: latin2":                       `:2: encoding: unknown encoding "latin2"`,
		"columns: id":                            ":4: want a list of names",
		"columns: [id, id]":                      `:2: columns: columns 1 and 2 are both named "id"`,
		"header: perhaps":                        ":4: want true or false",
		"header: false":                          ":2: header: without a row of names give them with columns",
		"format: json-files":                     `:4: unknown format "json-files"`,
		"typed-cells: perhaps":                   ":4: want true or false",
		"rate: fast":                             ":4: want a number",
		"rate: 0":                                ":4: rate 0: must be above 0",
		"rate: .nan":                             ":4: rate NaN: must be above 0",
		"rate: 1e10":                             ":4: rate 1e+10: must be above 0 and at most 1e+09",
		"from: kafka://a:1/jobs\n  delimiter: ;": "", // see below
	} {
		text := "sources:\n- name: a\n  from: file:///etc/hosts\n  " + option + "\n"
		if want == "" {
			text, want = "sources:\n- name: a\n  "+option, ":2: delimiter is for files, not for kafka://"
		}
		path := write(t, filepath.Join(t.TempDir(), "from.yaml"), text)
		r := run(t.Context(), nil, "append", "--queue", filepath.Join(t.TempDir(), "queue"), "--from", path)
		require.NotEqual(t, cli.ExitOK, r.status)
		require.Contains(t, r.lastLine(), want, text)
		require.Contains(t, r.lastLine(), path)
	}
	large := write(t, filepath.Join(t.TempDir(), "large.yaml"), strings.Repeat("#", 1<<20+1))
	require.Contains(t, fromFailure(t, cli.ExitFailure, "--from", large), "more than 1048576")
}

func TestSeveralSources(t *testing.T) {
	r := newResumer(t)
	r.file("a1.ndjson", a1, a2)
	r.file("b1.ndjson", b1)
	from := func(entries ...string) string {
		return write(t, filepath.Join(r.dir, "from.yaml"), strings.ReplaceAll(strings.Join(entries, "\n"), "DIR", r.dir))
	}
	const a, b = "- {name: a, from: 'file://DIR/a*.ndjson'}", "- {name: b, from: 'file://DIR/b*.ndjson'}"
	documents := func(args ...string) int {
		ok(t, "", append([]string{"append", "--queue", r.queueDir, "--from"}, args...)...)
		return strings.Count(dump(t, r.queueDir), "\n")
	}
	require.Equal(t, 3, documents(from("sources:", a, b)))
	require.Equal(t, 3, documents(from("sources:", a, b)), "nothing is new")
	r.file("b1.ndjson", b1, b2)
	r.file("a2.ndjson", a3)
	require.Equal(t, 5, documents(from("sources:", a, b)))

	refused := run(t.Context(), nil, "append", "--queue", r.queueDir, "--from", from("sources:", a))
	require.Equal(t, cli.ExitFailure, refused.status)
	require.Contains(t, refused.lastLine(), `the queue has records of a source "b", which is not among the sources`)
	require.Equal(t, 5, documents(from("sources:", a, "removed: [b]")))
	refused = run(t.Context(), nil, "append", "--queue", r.queueDir, "--from", "file://"+r.dir+"/a*.ndjson")
	require.Contains(t, refused.lastLine(), ": the queue's cursor was not written by docstore-updater; use --resume=false")
	require.Equal(t, 8, documents("file://"+r.dir+"/a*.ndjson", "--resume=false"))
}

// TestUnreadFiles: append appends the new files, also of other sources, and fails if a file is
// not read because it was added or changed before the last one that was read.
func TestUnreadFiles(t *testing.T) {
	r := newResumer(t)
	r.file("a2.ndjson", a1)
	r.file("b1.ndjson", b1)
	a, b := "file://"+r.dir+"/a*.ndjson", "file://"+r.dir+"/b*.ndjson"
	from := write(t, filepath.Join(r.dir, "from.yaml"), "sources: [{name: a, from: '"+a+"'}, {name: b, from: '"+b+"'}]")
	ok(t, "", "append", "--queue", r.queueDir, "--from", from)
	r.file("a1.ndjson", a3)
	r.file("a3.ndjson", a2)
	r.file("b2.ndjson", b2)
	for range 2 {
		failed := run(t.Context(), nil, "append", "--queue", r.queueDir, "--from", from)
		require.Equal(t, cli.ExitFailure, failed.status)
		require.Contains(t, failed.lastLine(), "source a: not all records were read: objects were added or changed before the last one that was read, "+r.dir+"/a")
		require.Equal(t, 4, strings.Count(dump(t, r.queueDir), "\n"), "all but a3")
	}
	require.NoError(t, os.Rename(filepath.Join(r.dir, "a1.ndjson"), filepath.Join(r.dir, "a4.ndjson")))
	ok(t, "", "append", "--queue", r.queueDir, "--from", from)
	require.Equal(t, 5, strings.Count(dump(t, r.queueDir), "\n"))
}

// TestLastFileIsRewritten: a file of the same size that was read to its end is refused.
func TestLastFileIsRewritten(t *testing.T) {
	r := newResumer(t)
	r.file("a1.ndjson", a1, a2)
	from := "file://" + r.dir + "/*.ndjson"
	ok(t, "", "append", "--queue", r.queueDir, "--from", from)
	r.file("a1.ndjson", a3, a2)
	failed := run(t.Context(), nil, "append", "--queue", r.queueDir, "--from", from)
	require.Equal(t, cli.ExitFailure, failed.status)
	require.Contains(t, failed.lastLine(), "a1.ndjson: cannot continue after line 2, at byte 24: the part that was read has changed since; restore it, or rename it")
	require.NoError(t, os.Rename(filepath.Join(r.dir, "a1.ndjson"), filepath.Join(r.dir, "a2.ndjson")))
	ok(t, "", "append", "--queue", r.queueDir, "--from", from)
	require.Equal(t, 4, strings.Count(dump(t, r.queueDir), "\n"))
}

// TestOptionsOfSources: the options of a source replace the flags of their names, for this
// source only.
func TestOptionsOfSources(t *testing.T) {
	r := newResumer(t)
	r.file("a.csv", "sku;price;note", "007;12.50;x")
	r.file("b.ndjson", `{"shop":"de","item":{"n":7},"note":"y"}`)
	r.file("c.ndjson", `{"key":"1","note":"z","more":2}`)
	path := write(t, filepath.Join(r.dir, "from.yaml"), strings.ReplaceAll(`
sources:
  - {name: a, from: 'file://DIR/a.csv', id: sku, delimiter: ;, typed-cells: true, drop: [note], rename: {price: eur}}
  - {name: b, from: 'file://DIR/b.ndjson', format: ndjson, id-template: '{shop}-{item.n}', keep: [note, item], rate: 1000}
  - {name: c, from: 'file://DIR/c.ndjson'}
`, "DIR", r.dir))
	args := []string{"append", "--queue", r.queueDir, "--from", path, "--id", "key", "--drop", "more"}
	dry := ok(t, "", append(args, "--dry-run")...).stdout
	for _, want := range []string{`"007": {"sku":"007","eur":12.50}`, `"de-7": {"item":{"n":7},"note":"y"}`, `"1": {"key":"1","note":"z"}`} {
		require.Contains(t, dry, want+"\n")
	}
	ok(t, "", args...)
	for id, want := range map[string]string{"007": `{"sku":"007","eur":12.50}`, "de-7": `{"item":{"n":7},"note":"y"}`, "1": `{"key":"1","note":"z"}`} {
		require.Equal(t, want, strings.TrimSpace(ok(t, "", "get", "--queue", r.queueDir, id).stdout))
	}
}

// TestFromDirectoryContinuesArguments: append --from file:// continues a queue whose files were
// arguments, as the ingest unit of earlier releases gave them.
func TestFromDirectoryContinuesArguments(t *testing.T) {
	line := func(id string) string { return `{"id":"` + id + "\"}\n" }
	for name, test := range map[string]struct {
		last   string // the content of the last argument
		change func(t *testing.T, last string)
		want   string // is appended by --from
	}{
		"unchanged":  {line("b"), func(*testing.T, string) {}, line("c")},
		"compressed": {gzipped(t, line("b")), func(*testing.T, string) {}, line("c")},
		"removed":    {line("b"), func(t *testing.T, last string) { require.NoError(t, os.Remove(last)) }, line("c")},
		"grown":      {line("b"), func(t *testing.T, last string) { write(t, last, line("b")+line("b2")) }, line("b2") + line("c")},
	} {
		t.Run(name, func(t *testing.T) {
			dir, queueDir := t.TempDir(), filepath.Join(t.TempDir(), "queue")
			first, last := write(t, filepath.Join(dir, "a.ndjson"), line("a")), write(t, filepath.Join(dir, "b.ndjson"), test.last)
			ok(t, "", "append", "--queue", queueDir, "--resume", first, last)
			test.change(t, last)
			write(t, filepath.Join(dir, "c.ndjson"), line("c"))
			for range 2 { // the second finds nothing
				r := ok(t, "", "append", "--queue", queueDir, "--from", "file://"+dir+"/*.ndjson")
				require.NotContains(t, r.stderr, "WARN")
			}
			require.Equal(t, line("a")+line("b")+test.want, dump(t, queueDir))
		})
	}
	dir, queueDir := t.TempDir(), filepath.Join(t.TempDir(), "queue")
	ok(t, "", "append", "--queue", queueDir, "--resume", write(t, filepath.Join(dir, "a.csv"), "id\na\n"))
	r := run(t.Context(), nil, "append", "--queue", queueDir, "--from", "file://"+dir+"/*.ndjson")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "the queue's cursor is that of files, not of objects", "the pattern does not select the file")
}
