package updater

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func TestBucketCheck(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("docs"))
	correct := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	ignoresCondition := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ignoresCondition {
			r.Header.Del("If-None-Match")
		}
		correct.ServeHTTP(w, r)
	}))
	defer server.Close()
	s3 := []string{"bucket", "check", "--s3-endpoint", server.URL, "--s3-path-style"}

	require.Contains(t, ok(t, "", append(s3, "s3://docs/jobs")...).stdout, "ok      a put never replaces an object\n")
	directory := filepath.Join(t.TempDir(), "jobs")
	r := ok(t, "", "bucket", "check", "file://"+directory)
	require.NotContains(t, r.stdout, "FAILED")
	require.Regexp(t, `(?m)^put     median .*s, slowest .*s\nget     median .*s, slowest .*s\nWith append --announce, a flushed document is served after .*s, at most .*s\.$`, r.stdout)
	left, err := filepath.Glob(filepath.Join(directory, "check", "*", "measured-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	var checked checkedBucket
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "bucket", "check", "--json", "file://"+directory).stdout), &checked))
	require.Len(t, checked.Properties, 8)
	require.Equal(t, checkedProperty{Property: "an object is read as it was put"}, checked.Properties[0])
	require.Positive(t, checked.Put.MedianSeconds)

	ignoresCondition = true
	r = run(t.Context(), nil, append(s3, "s3://docs/jobs")...)
	require.NotContains(t, r.stdout, "median")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "FAILED  a put never replaces an object")
	require.Contains(t, r.lastLine(), "do not publish to it")

	r = run(t.Context(), nil, append(s3, "s3://other")...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "create bucket other or correct its name")

	r = run(t.Context(), nil, "bucket", "check", "/srv/bucket")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.lastLine(), "want s3://")
}
