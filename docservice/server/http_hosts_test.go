package server

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
)

// answerTo requests a path of a daemon with a Host and other header fields.
func answerTo(t *testing.T, d *Server, method, host, path string, header http.Header) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.HTTPAddress()+path, nil)
	require.NoError(t, err)
	request.Host = host
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// A web page whose name resolves to a loopback address (DNS rebinding) reads nothing.
func TestLoopbackHTTPRefusesOtherHosts(t *testing.T) {
	jobs := t.TempDir()
	servertest.Fill(t, jobs, "a", `{"id":"a"}`)
	o := testOptions(t, jobs)
	o.HTTP.Hosts = []string{"docs.example.org"}
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	for path, kind := range endpointPaths {
		if kind != "nothing" {
			require.Equal(t, http.StatusForbidden, answerTo(t, d, http.MethodGet, "evil.example:7071", path, nil), path)
			require.Equal(t, http.StatusOK, answerTo(t, d, http.MethodGet, "localhost:7071", path, nil), path)
		}
	}
	require.Equal(t, http.StatusForbidden, answerTo(t, d, http.MethodPost, "evil.example", "/documents/jobs", nil))
	require.Contains(t, servertest.Get(d.http.Handler, "/healthz").Body.String(), "ok")
}

func TestOwnHosts(t *testing.T) {
	local, open := HTTP{Address: "localhost:7071"}, HTTP{Address: ":7071", Open: true, Hosts: []string{"Docs.Example.org."}}
	require.NoError(t, open.checkHosts())
	listed := HTTP{Address: "127.0.0.1:7071", Hosts: []string{"docs.example.org"}}
	for host, want := range map[string][3]bool{ // on loopback, there with a name, on all addresses with a name
		"":                            {false, false, false},
		"localhost":                   {true, true, true},
		"LOCALHOST.:7071":             {true, true, true},
		"127.0.0.1:7071":              {true, true, true},
		"127.8.9.1":                   {true, true, true},
		"[::1]:7071":                  {true, true, true},
		"[::ffff:127.0.0.1]:80":       {true, true, true},
		"docs.example.org":            {false, true, true},
		"DOCS.example.org:443":        {false, true, true},
		"10.0.0.7:7071":               {false, false, true},
		"[2001:db8::7]":               {false, false, true},
		"0.0.0.0:7071":                {false, false, true},
		"evil.example":                {false, false, false},
		"localhost.evil.example":      {false, false, false},
		"127.0.0.1.evil.example":      {false, false, false},
		"x.docs.example.org":          {false, false, false},
		"evil.example:7071@localhost": {false, false, false},
		"builder:7071":                {true, true, false},
		"builder.":                    {true, true, false},
		":7071":                       {false, false, false},
		".":                           {false, false, false},
	} {
		got := [3]bool{local.ownHosts().serves(host), listed.ownHosts().serves(host), open.ownHosts().serves(host)}
		require.Equal(t, want, got, "%q", host)
	}
}

// A page of another host cannot make its browser start a profile or an export either, but may
// have a link to the page.
func TestLoopbackHTTPRefusesPagesOfOtherHosts(t *testing.T) {
	jobs := t.TempDir()
	servertest.Fill(t, jobs, "a", `{"id":"a"}`)
	o := testOptions(t, jobs)
	o.HTTP.Hosts = []string{"docs.example.org"}
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	from := func(origin string) http.Header { return http.Header{"Origin": {origin}} }
	fetch := func(site, mode, dest string) http.Header {
		return http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
	}
	for _, c := range []struct {
		header http.Header
		want   int
	}{
		{nil, http.StatusOK},
		{from("http://localhost:7071"), http.StatusOK},
		{from("https://docs.example.org"), http.StatusOK},
		{from("https://evil.example"), http.StatusForbidden},
		{from("null"), http.StatusForbidden},
		{from("http://%"), http.StatusForbidden},
		{fetch("cross-site", "no-cors", "image"), http.StatusForbidden},
		{fetch("cross-site", "no-cors", "empty"), http.StatusForbidden},
		{fetch("cross-site", "navigate", "iframe"), http.StatusForbidden},
		{fetch("cross-site", "navigate", "document"), http.StatusOK},
		{fetch("same-origin", "cors", "empty"), http.StatusOK},
		{fetch("none", "navigate", "document"), http.StatusOK},
	} {
		require.Equal(t, c.want, answerTo(t, d, http.MethodGet, "localhost", "/collections/jobs/export", c.header), fmt.Sprint(c.header))
	}
	for origin, want := range map[string]int{"http://builder:7071": http.StatusOK, "http://builder": http.StatusForbidden, "http://wiki": http.StatusForbidden} {
		require.Equal(t, want, answerTo(t, d, http.MethodGet, "builder:7071", "/collections/jobs/export", from(origin)), origin)
	}
}

func TestHTTPHostsAreNames(t *testing.T) {
	for _, host := range []string{"", "https://a", "a:80", "a/b", "*.a", "[::1]"} {
		require.ErrorContains(t, (&HTTP{Address: "localhost:0", Hosts: []string{host}}).Check(&Security{}), "must be host names")
	}
	require.NoError(t, (&HTTP{Address: "localhost:0", Hosts: []string{"a", "b.example.org", "10.0.0.1", "2001:db8::1"}}).Check(&Security{}))
}

// Without --http-hosts a listener for other hosts answers under every name.
func TestHTTPToOtherHostsHasAnyName(t *testing.T) {
	base, _ := startPublicHTTP(t, func(o *Options) { o.HTTP.Open = true })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/metrics", nil)
	require.NoError(t, err)
	request.Host = "be-1.example.org"
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
