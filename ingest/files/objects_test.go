package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/klauspost/compress/gzip"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/internal/eof"
	"docstore/internal/testseed"
	"docstore/queue/bucket"
)

// objectsTest is a store that a test fills.
type objectsTest struct {
	*testing.T
	store Store
	root  string // of a directory
	put   func(name, content string)
	log   *bytes.Buffer
	later time.Duration // of the objects that are put
}

// stores returns the objects data/** of a directory and of an S3 bucket.
func stores(t *testing.T) map[string]*objectsTest {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "data"), 0o700))
	dir, err := NewDirectory(root + "/data/**")
	require.NoError(t, err)

	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("docs"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	client, err := bucket.Open(t.Context(), "s3://docs", bucket.Options{Endpoint: server.URL, PathStyle: true, ForeignNames: true})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	s3, err := NewBucket(client, "s3://docs", "data/**")
	require.NoError(t, err)
	files := &objectsTest{T: t, store: dir, root: root, log: new(bytes.Buffer)}
	files.put = func(name, content string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		// A file is read once, so it must have its content when it is first listed.
		incoming := filepath.Join(filepath.Dir(path), ".incoming")
		write(t, incoming, content)
		modified := time.Now().Add(files.later)
		require.NoError(t, os.Chtimes(incoming, modified, modified))
		require.NoError(t, os.Rename(incoming, path))
	}
	objects := &objectsTest{T: t, store: s3, log: new(bytes.Buffer)}
	objects.put = func(name, content string) {
		modified := time.Now().Add(objects.later).UTC().Format("Mon, 2 Jan 2006 15:04:05 GMT")
		_, err := backend.PutObject("docs", name, map[string]string{"Last-Modified": modified}, strings.NewReader(content), int64(len(content)), nil)
		require.NoError(t, err)
	}
	return map[string]*objectsTest{"directory": files, "s3": objects}
}

// name returns the name in the store of an object that was put.
func (o *objectsTest) name(put string) string { return filepath.Join(o.root, put) }

func (o *objectsTest) opener(options Options) *ObjectsOpener {
	if options.Format == "" {
		options.Format = records.FormatAuto
	}
	options.Records = testParsing
	return NewObjectsOpener(o.store, options, slog.New(slog.NewTextHandler(o.log, nil)))
}

func forEachStore(t *testing.T, test func(t *testing.T, o *objectsTest)) {
	for name, o := range stores(t) {
		t.Run(name, func(t *testing.T) {
			o.T = t
			test(t, o)
		})
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return b.String()
}

// putAll puts objects of all formats, and returns their documents in order.
func (o *objectsTest) putAll() (want []string) {
	next := 0
	lines := func(n int) string {
		var text strings.Builder
		for range n {
			next++
			want = append(want, fmt.Sprintf(`{"id":%d}`, next))
			text.WriteString(want[len(want)-1] + "\n")
		}
		return text.String()
	}
	o.put("data/1.ndjson", lines(40))
	o.put("data/2/date=2026-01-01/a b.ndjson.gz", gzipped(lines(30)))
	o.put("data/2/empty", "")
	o.put("data/3.json", "["+strings.TrimSuffix(strings.ReplaceAll(lines(20), "\n", ","), ",")+"]")
	type row struct {
		ID int64 `parquet:"id"`
	}
	var rows []row
	for range 50 {
		next++
		rows = append(rows, row{int64(next)})
		want = append(want, fmt.Sprintf(`{"id":%d}`, next))
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[row](&file, parquet.MaxRowsPerRowGroup(17))
	_, err := w.Write(rows)
	require.NoError(o, err)
	require.NoError(o, w.Close())
	o.put("data/4.parquet", file.String())
	o.put("data/5", strings.TrimSuffix(lines(3), "\n"))
	o.put("data/.hidden/x", `{"id":0}`)
	o.put("data/x/.part", `{"id":0}`)
	o.put("other", `{"id":0}`)
	return want
}

func texts(all []readRecord) (texts []string) {
	for _, r := range all {
		texts = append(texts, r.text)
	}
	return texts
}

// TestObjects resumes at every record, and compares any two positions.
func TestObjects(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		random := testseed.Rand(t)
		want := o.putAll()
		opener := o.opener(Options{})
		require.True(t, opener.Ends())
		all := readFrom(t, opener, "")
		require.Equal(t, want, texts(all))
		for i, r := range all {
			if o.store.PollInterval() > time.Second && random.IntN(4) > 0 {
				continue // fewer requests
			}
			rest := readFrom(t, opener, r.cursor)
			require.Equal(t, want[i+1:], append([]string{}, texts(rest)...))
			other := random.IntN(len(all))
			earliest, err := opener.Earliest([][]byte{[]byte(r.cursor), []byte(all[other].cursor)})
			require.NoError(t, err)
			require.Equal(t, all[min(i, other)].cursor, string(earliest))
			position, err := opener.Position([]byte(all[other].cursor))
			require.NoError(t, err)
			require.Equal(t, i <= other, r.included(position))
		}
		require.Empty(t, o.log.String())
	})
}

// requireUnread reads the records behind a cursor, and returns their cursors and the error of
// objects that are not read.
func (o *objectsTest) requireUnread(opener *ObjectsOpener, cursor string, want ...string) (cursors []string, unread string) {
	o.Helper()
	s, err := opener.Open(o.Context(), []byte(cursor))
	require.NoError(o, err)
	defer s.Close()
	var got []string
	for {
		b, err := s.Next(o.Context())
		if err != nil {
			require.ErrorIs(o, err, ingest.ErrUnread)
			require.Equal(o, want, got)
			return cursors, err.Error()
		}
		for i, r := range b.Records {
			got, cursors = append(got, string(r.Document)), append(cursors, string(b.AppendCursor(nil, i)))
		}
	}
}

// TestNewObjects: objects behind the last one are read. One before it is an error, in each run
// until it is renamed.
func TestNewObjects(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		o.put("data/b", `{"id":1}`)
		opener := o.opener(Options{})
		all := readFrom(t, opener, "")
		o.put("data/c", `{"id":2}`)
		all = append(all, readFrom(t, opener, all[0].cursor)...)
		require.Equal(t, []string{`{"id":1}`, `{"id":2}`}, texts(all))
		require.Empty(t, o.log.String())
		o.later = -time.Hour // a time of modification does not show that it is new
		o.put("data/a", `{"id":3}`)
		o.later = 0
		_, unread := o.requireUnread(opener, all[1].cursor)
		require.Equal(t, "not all records were read: objects were added or changed before the last one that was read, "+o.store.Describe(o.name("data/c"))+
			": 2 were read, 3 are present, for example "+o.store.Describe(o.name("data/a"))+
			"; rename them, so that they sort behind it, or remove them, or read all objects again with --resume=false", unread)
		o.put("data/d", `{"id":4}`)
		cursors, _ := o.requireUnread(opener, all[1].cursor, `{"id":4}`)
		_, unread = o.requireUnread(opener, cursors[0])
		require.Contains(t, unread, "3 were read, 4 are present")
		require.Empty(t, o.log.String())

		s, err := o.opener(Options{Follow: true}).Open(t.Context(), []byte(cursors[0]))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, 1, strings.Count(o.log.String(), "level=WARN msg=\"not all records were read: "), "with Follow it is a warning")
	})
}

// TestObjectsThatChangeAfterTheyWereRead: those before the last one are an error behind the new
// objects.
func TestObjectsThatChangeAfterTheyWereRead(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		for _, name := range []string{"data/a", "data/b", "data/c", "data/d", "data/e"} {
			o.put(name, `{"id":1}`)
		}
		opener := o.opener(Options{})
		all := readFrom(t, opener, "")
		o.later = time.Minute
		for _, name := range []string{"data/a", "data/b", "data/c", "data/d"} {
			o.put(name, `{"id":2}`)
		}
		o.put("data/f", `{"id":3}`)
		_, unread := o.requireUnread(opener, all[4].cursor, `{"id":3}`)
		require.Regexp(t, "5 were read, 5 are present, for example [^ ]*/data/a, [^ ]*/data/b, [^ ]*/data/c; rename them", unread)
	})
}

// TestLastObjectIsRewritten: one of the same size that was read to its end is compared.
func TestLastObjectIsRewritten(t *testing.T) {
	filler := strings.Repeat("x", 2*sampleBytes)
	document := func(head, middle, tail string) string {
		return fmt.Sprintf("{\"id\":\"%s\"}\n{\"id\":\"f\",\"x\":\"%s\"}\n{\"id\":\"%s\"}\n{\"id\":\"g\",\"x\":\"%s\"}\n{\"id\":\"%s\"}\n", head, filler, middle, filler, tail)
	}
	array := func(lines string) string {
		return "[" + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", ",") + "]"
	}
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		opener := o.opener(Options{})
		for name, encode := range map[string]func(string) string{"lines": func(s string) string { return s }, "array": array, "gzip": stored} {
			o.later = 0
			o.put("data/a", encode(document("1", "2", "3")))
			all := readFrom(t, opener, "")
			last := all[len(all)-1].cursor
			require.Empty(t, readFrom(t, opener, last))
			o.later += time.Minute
			o.put("data/a", encode(document("1", "2", "3")))
			require.Empty(t, readFrom(t, opener, last), "the content is the same")
			for place, changed := range map[string]string{"head": document("9", "2", "3"), "middle": document("1", "9", "3"), "tail": document("1", "2", "9")} {
				o.put("data/a", encode(changed))
				err := failureFrom(t, opener, last)
				require.ErrorIs(t, err, errChanged, "%s, %s", name, place)
				require.ErrorContains(t, err, "/data/a: cannot continue after line 5, at byte ")
				require.ErrorContains(t, err, "rename it, so that it is read as a new one")
			}
		}
	})
}

// stored compresses a text without making it smaller, so that texts of one size have one size.
func stored(text string) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.NoCompression)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return b.String()
}

// failureFrom returns the error of reading behind a cursor.
func failureFrom(t *testing.T, opener *ObjectsOpener, cursor string) error {
	t.Helper()
	s, err := opener.Open(t.Context(), []byte(cursor))
	if err != nil {
		return err
	}
	defer s.Close()
	for err == nil {
		_, err = s.Next(t.Context())
	}
	return err
}

func TestFollowWaitsForObjects(t *testing.T) {
	o := stores(t)["directory"]
	o.put("data/a", `{"id":1}`)
	opener := o.opener(Options{Follow: true})
	require.False(t, opener.Ends())
	s, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close()
	s.(*Source).objects.store = impatient{o.store}
	b, err := s.Next(t.Context())
	require.NoError(t, err)
	require.False(t, b.Ends)
	time.AfterFunc(10*time.Millisecond, func() { o.put("data/.b", `{"id":2}`); o.put("data/b", `{"id":2}`) })
	b, err = s.Next(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.Place(0), "data/b:1")
	n, unit := s.Lag()
	require.Zero(t, n)
	require.Equal(t, "bytes", unit)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// impatient is a store that is listed often.
type impatient struct{ Store }

func (impatient) PollInterval() time.Duration { return time.Millisecond }

func TestChangedObjects(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		o.put("data/a", "{\"id\":1}\n{\"id\":2}\n")
		o.put("data/b.json", `[{"id":3},{"id":4}]`)
		opener := o.opener(Options{})
		all := readFrom(t, opener, "")
		refuses := func(i int, want string) {
			t.Helper()
			_, err := opener.Open(t.Context(), []byte(all[i].cursor))
			require.ErrorContains(t, err, want)
		}
		o.put("data/a", "{\"id\":1}\n{\"id\":2}\n{\"id\":5}\n")
		require.Equal(t, `{"id":2}`, readFrom(t, opener, all[0].cursor)[0].text, "lines were appended")
		o.put("data/a", "{\"id\":0}\n{\"id\":2}\n")
		refuses(0, "cannot continue after line 1, at byte 9: the part that was read has changed since")
		o.put("data/b.json", `[{"id":3}]`)
		refuses(3, "it had 19 bytes when it was read, and now has 10; restore it, or use --resume=false")
		_, err := opener.Position([]byte("DSUC\x00\x08"))
		require.ErrorContains(t, err, "is damaged")
		file := cursor{Path: "/a"}
		_, err = opener.Position(file.append(nil))
		require.ErrorContains(t, err, "the queue's cursor is that of files, not of objects")
		files, err := NewOpener([]string{StandardInput}, Options{})
		require.NoError(t, err)
		_, err = files.Position([]byte(all[0].cursor))
		require.ErrorContains(t, err, "is not among the arguments")
	})
}

// replacing replaces objects by smaller ones after each list.
type replacing struct {
	Store
	replace func()
}

func (r replacing) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var all []Object
		for object, err := range r.Store.List(ctx, after) {
			if err != nil {
				yield(object, err)
				return
			}
			all = append(all, object)
		}
		r.replace()
		for _, object := range all {
			if !yield(object, nil) {
				return
			}
		}
	}
}

// TestObjectsThatShrinkAfterTheList: they and the objects behind them are read.
func TestObjectsThatShrinkAfterTheList(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		for _, name := range []string{"data/a", "data/b", "data/c", "data/d"} {
			o.put(name, "{\"id\":1}\n{\"id\":2}\n")
		}
		o.store = replacing{o.store, func() {
			o.put("data/b", "{\"id\":3}\n")
			o.put("data/c", "")
		}}
		all := readFrom(t, o.opener(Options{}), "")
		require.Equal(t, []string{`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":1}`, `{"id":2}`}, texts(all))
	})
}

// overstating is a store whose sizes are too large by one byte.
type overstating struct{ Store }

func (s overstating) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for object, err := range s.Store.List(ctx, after) {
			if object.Size++; !yield(object, err) {
				return
			}
		}
	}
}

func (s overstating) Size(ctx context.Context, name string) (int64, error) {
	size, err := s.Store.Size(ctx, name)
	return size + 1, err
}

// failing is a store whose reads fail with an error that wraps io.EOF, as requests do whose
// connection is closed: request fails in the n-th Open, body in the n-th read of a whole object.
type failing struct {
	Store
	request, body int
}

var errBrokenStore = fmt.Errorf("the connection broke: %w", io.EOF)

func (s *failing) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if s.request--; s.request == 0 {
		return nil, errBrokenStore
	}
	r, err := s.Store.Open(ctx, name, offset, length)
	if err != nil || length >= 0 {
		return r, err
	}
	if s.body--; s.body == 0 {
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r, 9), iotest.ErrReader(errBrokenStore)), r}, nil
	}
	return r, nil
}

// TestFailedReadsAreNoEnd: an error that wraps io.EOF is not the end of the source.
func TestFailedReadsAreNoEnd(t *testing.T) {
	o := stores(t)["directory"]
	for _, name := range []string{"data/a", "data/b", "data/c"} {
		o.put(name, "{\"id\":1}\n{\"id\":2}\n")
	}
	inner := o.store
	for name, store := range map[string]Store{
		"the first request": &failing{Store: inner, request: 1},
		"a later request":   &failing{Store: inner, request: 4},
		"a body":            &failing{Store: inner, body: 2},
		"a size":            overstating{inner},
	} {
		t.Run(name, func(t *testing.T) {
			o.store = store
			s, err := o.opener(Options{}).Open(t.Context(), nil)
			require.NoError(t, err)
			defer s.Close()
			for err == nil {
				_, err = s.Next(t.Context())
			}
			require.False(t, eof.Is(err))
			require.ErrorContains(t, err, "/data/", "the file is named")
		})
	}
}

func TestRemovedObjects(t *testing.T) {
	o := stores(t)["directory"]
	o.put("data/a", "{\"id\":1}\n{\"id\":2}\n")
	opener := o.opener(Options{})
	all := readFrom(t, opener, "")
	require.NoError(t, os.Remove(filepath.Join(o.root, "data/a")))
	require.Empty(t, readFrom(t, opener, all[1].cursor), "it was read to its end")
	_, err := opener.Open(t.Context(), []byte(all[0].cursor))
	require.ErrorContains(t, err, "the last run ended in the middle of ")
	require.ErrorContains(t, err, "it does not exist any more; restore it, or use --resume=false")
}

func TestParquetMemoryIsLimited(t *testing.T) {
	o := stores(t)["directory"]
	var file bytes.Buffer
	w := parquet.NewGenericWriter[struct{ ID, Text string }](&file)
	_, err := w.Write([]struct{ ID, Text string }{{"1", string(bytes.Repeat([]byte{'x'}, 1<<20))}})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	o.put("data/a", file.String())
	s, err := o.opener(Options{ParquetBytes: 1 << 20}).Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Next(t.Context())
	require.ErrorContains(t, err, "more than the limit of 1048576; raise the limit, or write smaller row groups")
	_, again := s.Next(t.Context())
	require.Equal(t, err, again)
}

// TestColumnsOfParquet: the place in a file does not depend on the columns that are read, and
// another file with the name is refused.
func TestColumnsOfParquet(t *testing.T) {
	o := stores(t)["directory"]
	type row struct {
		ID   int64 `parquet:"id"`
		Text string
	}
	put := func(text string) {
		var file bytes.Buffer
		w := parquet.NewGenericWriter[row](&file)
		_, err := w.Write([]row{{1, text}, {2, text}, {3, text}})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		o.put("data/a", file.String())
	}
	put("x")
	all := readFrom(t, o.opener(Options{}), "")
	require.Equal(t, []string{`{"id":1,"Text":"x"}`, `{"id":2,"Text":"x"}`, `{"id":3,"Text":"x"}`}, texts(all))
	ids := o.opener(Options{Columns: func(name string) bool { return name == "id" }})
	some := readFrom(t, ids, all[0].cursor)
	require.Equal(t, []string{`{"id":2}`, `{"id":3}`}, texts(some))
	require.Equal(t, all[1].cursor, some[0].cursor)

	put("y")
	s, err := ids.Open(t.Context(), []byte(all[0].cursor))
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Next(t.Context())
	require.ErrorIs(t, err, errChanged)
}

func TestPatterns(t *testing.T) {
	for text, test := range map[string]struct{ prefix, selects, refuses string }{
		"":           {"", "a a/b", ".a a/.b"},
		"a/":         {"a/", "a/b a/b/c", "a ab a/.b a/.b/c"},
		"a/*.csv":    {"a/", "a/b.csv a/.csv.csv", "a/b/c.csv a/b.csvx"},
		"a/**/c":     {"a/", "a/c a/b/c a/b/b/c", "a/bc"},
		"a/b*/c[1]+": {"a/b", "a/b/c[1]+ a/bx/c[1]+", "a/b/c1"},
		"a/b":        {"a/b", "a/b", "a/bc a"},
	} {
		p, err := parsePattern(text)
		require.NoError(t, err)
		require.Equal(t, test.prefix, p.prefix)
		for name := range strings.FieldsSeq(test.selects) {
			if name != "a/.csv.csv" {
				require.True(t, p.selects(name), "%q selects %q", text, name)
			}
		}
		for name := range strings.FieldsSeq(test.refuses) {
			require.False(t, p.selects(name), "%q selects %q", text, name)
		}
	}
	_, err := NewDirectory(t.TempDir() + "/none/*")
	require.Error(t, err)
	require.True(t, errors.Is(err, os.ErrNotExist))
}

// staleList is a Store whose list states the sizes of before the objects were replaced.
type staleList struct {
	Store
	sizes map[string]int64
}

func (s staleList) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for object, err := range s.Store.List(ctx, after) {
			if size, ok := s.sizes[object.Name[strings.LastIndexByte(object.Name, '/')+1:]]; ok {
				object.Size = size
			}
			if !yield(object, err) {
				return
			}
		}
	}
}

// TestObjectReplacedSinceTheList: a compressed object that was replaced by a larger one between
// the list and its get is read, and the next run continues behind it.
func TestObjectReplacedSinceTheList(t *testing.T) {
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		small, large := gzipped(`{"id":1}`+"\n"), gzipped(`{"id":1}`+"\n"+`{"id":2,"text":"longer"}`+"\n")
		require.Less(t, len(small), len(large))
		o.put("data/1.gz", large)
		o.store = staleList{o.store, map[string]int64{"1.gz": int64(len(small))}}
		got := readFrom(o.T, o.opener(Options{}), "")
		require.Equal(t, []string{`{"id":1}`, `{"id":2,"text":"longer"}`}, texts(got))
		o.put("data/2.gz", gzipped(`{"id":3}`+"\n"))
		require.Equal(t, []string{`{"id":3}`}, texts(readFrom(o.T, o.opener(Options{}), got[1].cursor)))
	})
}
