package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newMemory returns a bucket in memory.
func newMemory(t testing.TB) *bucket.Dir {
	t.Helper()
	d, err := bucket.OpenDir(vfs.NewMem(), "bucket")
	require.NoError(t, err)
	return d
}

// s3Handler returns an S3 server in memory with a bucket named "docs".
func s3Handler(t testing.TB) http.Handler {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("docs"))
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// startS3 starts the server of s3Handler and returns its URL.
func startS3(t testing.TB) string {
	t.Helper()
	server := httptest.NewUnstartedServer(s3Handler(t))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the handler reports broken connections
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// openS3 opens s3://docs/jobs at an endpoint, with made-up credentials.
func openS3(t testing.TB, endpoint string, options bucket.Options) *bucket.Client {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	options.Endpoint, options.PathStyle = endpoint, true
	b, err := bucket.Open(t.Context(), "s3://docs/jobs", options)
	require.NoError(t, err)
	t.Cleanup(b.CloseIdle)
	return b
}

// backends opens a bucket of each kind.
var backends = map[string]func(t *testing.T) bucket.Bucket{
	"memory": func(t *testing.T) bucket.Bucket { return newMemory(t) },
	"directory": func(t *testing.T) bucket.Bucket {
		b, err := bucket.Open(t.Context(), "file://"+t.TempDir()+"/bucket", bucket.Options{})
		require.NoError(t, err)
		return b
	},
	"s3": func(t *testing.T) bucket.Bucket { return openS3(t, startS3(t), bucket.Options{}) },
}

func forEachBackend(t *testing.T, test func(t *testing.T, b bucket.Bucket)) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func TestCheckPassesForEachBackend(t *testing.T) {
	forEachBackend(t, func(t *testing.T, b bucket.Bucket) {
		findings, err := bucket.Check(t.Context(), b)
		require.NoError(t, err)
		require.NoError(t, bucket.Deviations(findings))
		require.NotEmpty(t, findings)
		for info, err := range b.List(t.Context(), "", "") {
			require.NoError(t, err)
			t.Errorf("Check left %s", info.Name)
		}
	})
}

// deviant is a store with a defect.
type deviant struct {
	bucket.Bucket
	mu    sync.Mutex
	put   func(d *deviant, ctx context.Context, name string, body io.ReaderAt, size int64) error
	get   func(d *deviant, ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	after func(after string) string
}

func (d *deviant) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if d.put != nil {
		return d.put(d, ctx, name, body, size)
	}
	return d.Bucket.Put(ctx, name, body, size)
}

func (d *deviant) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if d.get != nil {
		return d.get(d, ctx, name, offset, length)
	}
	return d.Bucket.Get(ctx, name, offset, length)
}

func (d *deviant) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	if d.after != nil {
		after = d.after(after)
	}
	return d.Bucket.List(ctx, prefix, after)
}

// replace puts an object over another.
func (d *deviant) replace(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Delete(ctx, name); err != nil {
		return err
	}
	return d.Bucket.Put(ctx, name, body, size)
}

func TestCheckReportsDeviations(t *testing.T) {
	for name, test := range map[string]struct {
		store *deviant
		want  string
	}{
		"If-None-Match is ignored": {
			&deviant{put: (*deviant).replace}, "a put never replaces an object",
		},
		"If-None-Match is not atomic": {
			&deviant{put: func(d *deviant, ctx context.Context, name string, body io.ReaderAt, size int64) error {
				if _, err := d.Head(ctx, name); err == nil {
					return bucket.ErrExist
				}
				time.Sleep(time.Millisecond) // let other puts pass the check
				return d.replace(ctx, name, body, size)
			}}, "exactly one creates the object",
		},
		"ranges are one byte short": {
			&deviant{get: func(d *deviant, ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
				return d.Bucket.Get(ctx, name, offset, max(length-1, -1))
			}}, "a range is read exactly",
		},
		"ranges are ignored": {
			&deviant{get: func(d *deviant, ctx context.Context, name string, _, _ int64) (io.ReadCloser, error) {
				return d.Bucket.Get(ctx, name, 0, -1)
			}}, "a range is read exactly",
		},
		"lists begin at the first object": {
			&deviant{after: func(string) string { return "" }}, "a list is complete, ordered and current",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := test.store
			store.Bucket = newMemory(t)
			findings, err := bucket.Check(t.Context(), store)
			require.NoError(t, err)
			require.ErrorContains(t, bucket.Deviations(findings), test.want)
		})
	}
}

// TestModel compares random operations with a map.
func TestModel(t *testing.T) {
	forEachBackend(t, func(t *testing.T, b bucket.Bucket) {
		rng, ctx, model := testseed.Rand(t), t.Context(), map[string]string{}
		name := func() string { return fmt.Sprintf("%c/%c/%d", 'a'+rng.IntN(2), 'x'+rng.IntN(3), rng.IntN(4)) }
		for range 400 {
			name := name()
			stored, exists := model[name]
			switch rng.IntN(5) {
			case 0, 1:
				content := strings.Repeat(fmt.Sprint(rng.Uint64()), rng.IntN(50))
				err := b.Put(ctx, name, strings.NewReader(content), int64(len(content)))
				if exists {
					require.ErrorIs(t, err, bucket.ErrExist)
				} else {
					require.NoError(t, err)
					model[name] = content
				}
			case 2:
				offset, length := rng.Int64N(600), rng.Int64N(600)-1
				r, err := b.Get(ctx, name, offset, length)
				if !exists {
					require.ErrorIs(t, err, bucket.ErrNotExist)
					continue
				}
				require.NoError(t, err)
				got, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, r.Close())
				from := min(offset, int64(len(stored)))
				to := int64(len(stored))
				if length >= 0 {
					to = min(to, from+length)
				}
				require.Equal(t, stored[from:to], string(got))
				info, err := b.Head(ctx, name)
				require.NoError(t, err)
				require.Equal(t, bucket.Info{Name: name, Size: int64(len(stored))}, info)
			case 3:
				prefix, after := name[:rng.IntN(len(name))], ""
				if rng.IntN(2) == 0 {
					after = name
				}
				got := []string{}
				for info, err := range b.List(ctx, prefix, after) {
					require.NoError(t, err)
					require.Equal(t, int64(len(model[info.Name])), info.Size)
					got = append(got, info.Name)
				}
				want := slices.DeleteFunc(slices.Sorted(maps.Keys(model)), func(n string) bool {
					return !strings.HasPrefix(n, prefix) || n <= after
				})
				require.Equal(t, append([]string{}, want...), got)
			case 4:
				require.NoError(t, b.Delete(ctx, name))
				delete(model, name)
			}
		}
	})
}

func TestInvalidNamesAndSizes(t *testing.T) {
	forEachBackend(t, func(t *testing.T, b bucket.Bucket) {
		ctx, body := t.Context(), bytes.NewReader([]byte("0123456789"))
		for _, name := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".tmp/a", "a b", "ä", "a\x00", `a\b`, strings.Repeat("a", bucket.MaxNameBytes+1)} {
			require.Error(t, b.Put(ctx, name, body, 10), "%q", name)
			_, err := b.Get(ctx, name, 0, -1)
			require.Error(t, err, "%q", name)
			_, err = b.Head(ctx, name)
			require.Error(t, err, "%q", name)
			require.Error(t, b.Delete(ctx, name), "%q", name)
		}
		require.Error(t, b.Put(ctx, "a", body, -1))
		require.Error(t, b.Put(ctx, "a", body, bucket.MaxObjectBytes+1))
		require.Error(t, b.Put(ctx, "a", body, 11), "the body is shorter than its size")
		_, err := b.Get(ctx, "a", -1, 1)
		require.Error(t, err)
		_, err = b.Head(ctx, "a")
		require.ErrorIs(t, err, bucket.ErrNotExist, "a failed put leaves no object")
	})
}

func TestReadAllRefusesLargeObjects(t *testing.T) {
	b := newMemory(t)
	require.NoError(t, b.Put(t.Context(), "a", strings.NewReader("12345"), 5))
	got, err := bucket.ReadAll(t.Context(), b, "a", 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(got))
	_, err = bucket.ReadAll(t.Context(), b, "a", 4)
	require.ErrorContains(t, err, "more than 4 bytes")
}

func TestOpenRefusesInvalidURLs(t *testing.T) {
	for url, want := range map[string]string{
		"":                        "want s3://",
		"/data/bucket":            "want s3://",
		"http://host/docs":        "want s3://",
		"s3://":                   "names no bucket",
		"s3:///docs":              "names no bucket",
		"s3://docs/../jobs":       "invalid object name",
		"s3://key:secret@docs/a":  "must not have a user",
		"s3://docs/jobs?region=x": "must not have a user",
		"file://data/bucket":      "three slashes",
		"file:///no/such/parent":  "create its parent directory",
		"s3://docs/%zz":           "invalid URL",
	} {
		_, err := bucket.Open(t.Context(), url, bucket.Options{})
		require.ErrorContains(t, err, want, url)
		require.Equal(t, !strings.HasPrefix(url, "file:///"), errors.Is(err, bucket.ErrURL), url)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := bucket.Open(t.Context(), "file:///no/such/parent", bucket.Options{})
	require.ErrorIs(t, err, bucket.ErrNoBucket)
	_, err = bucket.Open(t.Context(), "s3://docs", bucket.Options{MaxRequests: -1})
	require.ErrorContains(t, err, "must not be negative")
}
