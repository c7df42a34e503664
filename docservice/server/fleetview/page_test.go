package fleetview

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice/placement/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a Source with values set by a test.
type source struct {
	mu    sync.Mutex
	fleet *fleet.Fleet
	err   error
	reads int
}

func (s *source) read(_ context.Context, _ string) (*fleet.Fleet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, s.err
	}
	f := *s.fleet
	f.Time = time.Now()
	return &f, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func serve(t *testing.T, s *source, collections ...string) (*Page, string) {
	p := NewPage(collections, s.read, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	p.Handle(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return p, server.URL
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

func TestPage(t *testing.T) {
	f := example()
	f.Columns[2].Rows[0].Page = "javascript:alert(1)"
	f.Columns[2].Rows[0].Zone = "<b>z2</b>"
	s := &source{fleet: f}
	_, url := serve(t, s, "jobs", "other")
	status, body := get(t, url+"/fleet")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{
		"<h1>Fleet of jobs</h1>", "64 shards of 3 GiB in 3 columns", "moves are paused", `<a href="/fleet?collection=other">other</a>`,
		`<span class="pill warn">lagging</span> <a href="http://10.0.0.1:7071">10.0.0.1:7070</a>`, "manifest 16 of 17", `b <span class="pill warn">drained</span>`,
		`<span class="free">free</span>`, "30 MiB of 100 MiB", "10 MiB", "0 of 1", "&lt;b&gt;z2&lt;/b&gt;",
	} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, "javascript:")
	for _, name := range sections {
		require.Contains(t, body, `id="`+name+`"`)
	}

	var got fleet.Fleet
	status, body = get(t, url+"/api/v1/fleet?collection=jobs")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, f.Columns, got.Columns)
	require.Equal(t, 1, s.reads, "a state serves all viewers of a second")

	for _, path := range []string{"/fleet", "/fleet/live", "/api/v1/fleet"} {
		status, body = get(t, url+path+"?collection=none")
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, body, `serves no sharded collection "none"; it serves: jobs, other`)
	}
	_, none := serve(t, s)
	status, body = get(t, none+"/fleet")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "without --etcd")
}

// Without etcd the page shows the last state and the reason, and the JSON has an error.
func TestLastStateIsShown(t *testing.T) {
	s := &source{err: errors.New("etcd is away")}
	p, url := serve(t, s, "jobs")
	status, body := get(t, url+"/fleet")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `<p class="bad-text">etcd is away</p>`)
	s.fail(nil)
	s.fleet = example()
	p.states["jobs"].read = time.Time{} // a second later
	_, body = get(t, url+"/fleet")
	require.Contains(t, body, "10.0.0.1:7070")
	s.fail(errors.New("etcd is away"))
	p.states["jobs"].read = time.Time{}
	_, body = get(t, url+"/fleet")
	require.Contains(t, body, "10.0.0.1:7070")
	require.Regexp(t, `<p class="bad-text">as of \d\d:\d\d:\d\d UTC: etcd is away</p>`, body)
	status, body = get(t, url+"/api/v1/fleet")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "etcd is away\n", body)
}

func TestLive(t *testing.T) {
	s := &source{fleet: example()}
	_, url := serve(t, s, "jobs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/fleet/live?collection=jobs", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	next := func() (event string) {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				return name
			}
		}
		return ""
	}
	require.Equal(t, sections, []string{next(), next(), next()})
	s.mu.Lock()
	changed := *example()
	changed.Moves = nil
	s.fleet = &changed
	s.mu.Unlock()
	require.Equal(t, "moves", next())
	cancel()
}

func TestGridIsBounded(t *testing.T) {
	f := &fleet.Fleet{Columns: []fleet.Column{{Name: "a", Rows: []fleet.Row{{Row: 1 << 20}}}}}
	require.Len(t, numbers(f), maxRows)
	require.Len(t, grid(f)[0].Cells, maxRows)
}
