package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/internal/servertest"
)

// countedLister counts the ids of scans.
type countedLister struct {
	Lister
	ids, counts int
}

func (c *countedLister) Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer collection.Answer) error) error {
	return c.Lister.Scan(ctx, o, func(id []byte, answer collection.Answer) error {
		c.ids++
		return fn(id, answer)
	})
}

func (c *countedLister) Count(ctx context.Context, prefix []byte) (int64, error) {
	c.counts++
	return c.Lister.Count(ctx, prefix)
}

// heldLister is a Held with another Lister.
type heldLister struct {
	Held
	lister Lister
}

func (h heldLister) Lister() Lister { return h.lister }

// HEAD of a list has the status and type of GET, and reads at most one id.
func TestHeadOfAListReadsNoList(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", "text", "b", "{}", "c", "{}")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	d.held.Lock()
	lister := &countedLister{Lister: d.held.list[0].Lister()}
	d.held.list[0] = heldLister{d.held.list[0], lister}
	d.held.Unlock()
	for list, contentType := range map[string]string{"ids": "application/json", "count": "application/json", "export": "application/x-ndjson"} {
		path := "/collections/jobs/" + list
		lister.ids, lister.counts = 0, 0
		head := ask(t, d, "HEAD", path, "")
		require.LessOrEqual(t, lister.ids, 1, list)
		require.Zero(t, lister.counts)
		get := ask(t, d, "GET", path, "")
		require.Equal(t, 3, lister.ids+3*lister.counts-1, list) // 1 by HEAD
		require.Equal(t, get.Code, head.Code)
		require.Equal(t, contentType, get.Header().Get("Content-Type"))
		require.Equal(t, contentType, head.Header().Get("Content-Type"))
		require.Empty(t, head.Body.String())
		require.Equal(t, http.StatusBadRequest, ask(t, d, "HEAD", path+"?none=1", "").Code)
		require.Equal(t, http.StatusNotFound, ask(t, d, "HEAD", "/collections/nope/"+list, "").Code)
	}
	for _, path := range []string{"/debug/pprof/profile?seconds=60", "/debug/pprof/trace?seconds=60"} {
		require.Equal(t, http.StatusOK, ask(t, d, "HEAD", path, "").Code, "at once")
	}
}

func TestListOverHTTP(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "b-1", `{"n":1}`, "a", "text", "b-2", `{"n":2}`, "b-3", `{}`, "b-3", "", "b-\xff", `{"n":3}`, "ü ?", `{}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for _, test := range []struct {
		path   string
		status int
		body   string
	}{
		{"ids", 200, `{"ids":["a","b-1","b-2",{"id_base64":"Yi3/"},"ü ?"]}`},
		{"ids?prefix=b-", 200, `{"ids":["b-1","b-2",{"id_base64":"Yi3/"}]}`},
		{"ids?prefix=none", 200, `{"ids":[]}`},
		{"ids?prefix=%C3%BC%20", 200, `{"ids":["ü ?"]}`},
		{"ids?prefix=b-&limit=3", 200, `{"ids":["b-1","b-2",{"id_base64":"Yi3/"}]}`},
		{"ids?prefix=b-&limit=2", 200, `{"ids":["b-1","b-2"],"next":"/collections/jobs/ids?after=b-2&limit=2&prefix=b-"}`},
		{"ids?after=b-2&limit=1", 200, `{"ids":[{"id_base64":"Yi3/"}],"next":"/collections/jobs/ids?after=b-%FF&limit=1"}`},
		{"ids?after=b-%FF&limit=1", 200, `{"ids":["ü ?"]}`},
		{"count", 200, `{"count":5}`},
		{"count?prefix=b-", 200, `{"count":3}`},
		{"export?prefix=b-&limit=2", 200, `{"id":"b-1","found":true,"document":{"n":1}}` + "\n" + `{"id":"b-2","found":true,"document":{"n":2}}`},
		{"export?after=b-2", 200, `{"id_base64":"Yi3/","found":true,"document":{"n":3}}` + "\n" + `{"id":"ü ?","found":true,"document":{}}`},
		{"ids?limit=0", 400, `{"error":{"code":"invalid_argument","message":"limit=0: want a number from 1"}}`},
		{"ids?limit=4097", 400, `{"error":{"code":"invalid_argument","message":"limit=4097: at most 4096; follow \"next\" for more, or use export"}}`},
		{"ids?prefx=b", 400, `{"error":{"code":"invalid_argument","message":"parameter \"prefx\": want each of [prefix after limit] at most once"}}`},
		{"count?limit=1", 400, `{"error":{"code":"invalid_argument","message":"parameter \"limit\": want each of [prefix] at most once"}}`},
		{"export?prefix=a&prefix=b", 400, `{"error":{"code":"invalid_argument","message":"parameter \"prefix\": want each of [prefix after limit] at most once"}}`},
	} {
		t.Run(test.path, func(t *testing.T) {
			status, body := fetch(t, d, "/collections/jobs/"+test.path)
			require.Equal(t, test.status, status)
			require.Equal(t, test.body, strings.TrimSuffix(body, "\n"))
		})
	}
	for _, question := range []string{"ids", "count", "export"} {
		status, _ := fetch(t, d, "/collections/nope/"+question)
		require.Equal(t, http.StatusNotFound, status)
	}
}

// fetch requests a path from the daemon's listener.
func fetch(t *testing.T, d *Server, path string) (status int, body string) {
	t.Helper()
	response, err := http.Get("http://" + d.HTTPAddress() + path)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(b)
}

// All pages together, and the export, list every id once, in order; an unavailable document
// is reported in its place.
func TestExportOverHTTP(t *testing.T) {
	const documents = 2500
	queueDir := t.TempDir()
	var pairs []string
	for i := range documents {
		pairs = append(pairs, fmt.Sprintf("id-%04d", i), fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 100)))
	}
	pairs = append(pairs, "zzz", `{"text":"damaged soon"}`)
	servertest.Fill(t, queueDir, pairs...)
	damageText(t, queueDir, "damaged soon")
	o := testOptions(t, queueDir)
	o.Quarantine = false
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)

	next, listed := "/collections/jobs/ids?limit=700", 0
	for next != "" {
		var page struct {
			IDs  []string
			Next string
		}
		_, body := fetch(t, d, next)
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		for _, id := range page.IDs {
			if listed < documents {
				require.Equal(t, fmt.Sprintf("id-%04d", listed), id)
			}
			listed++
		}
		next = page.Next
	}
	require.Equal(t, documents+1, listed)

	status, body := fetch(t, d, "/collections/jobs/export")
	require.Equal(t, http.StatusOK, status)
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	require.Len(t, lines, documents+1)
	for i, line := range lines[:documents] {
		var got struct {
			ID       string
			Document struct{ N int }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		require.Equal(t, fmt.Sprintf("id-%04d", i), got.ID)
		require.Equal(t, i, got.Document.N)
	}
	require.Regexp(t, `^\{"id":"zzz","found":false,"code":"unavailable","error":".*unavailable.*"\}$`, lines[documents])
}

// damageText changes a byte of the text in a queue's files.
func damageText(t *testing.T, queueDir, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(queueDir, "*"))
	require.NoError(t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if at := strings.Index(string(content), text); at >= 0 {
			content[at] ^= 0x20
			require.NoError(t, os.WriteFile(name, content, 0o600))
			return
		}
	}
	require.Fail(t, "no file holds the text", text)
}

// Until the queue has been read to its end no list is served, because ids could be missing.
func TestListBeforeReady(t *testing.T) {
	d, _ := startTestDaemon(t, testOptions(t, t.TempDir())) // no segment has arrived
	for _, question := range []string{"ids", "count", "export"} {
		status, body := fetch(t, d, "/collections/jobs/"+question)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, docservice.ErrUnavailable.Error())
	}
}

// An export whose client stalls is aborted: the client detects that it is incomplete.
func TestStalledExportIsAborted(t *testing.T) {
	d, _ := startTestDaemon(t, testOptions(t, t.TempDir()))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		patient := &deadlineWriter{to: w, control: http.NewResponseController(w)}
		_, err := patient.Write([]byte("a line\n"))
		assert.NoError(t, err)
		assert.NoError(t, http.NewResponseController(w).Flush())
		endLines(w, patient, d.options.Logger, errors.New("the client stalls"))
	}))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
