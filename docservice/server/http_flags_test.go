package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

// endpointPaths are the paths of the listener by kind.
var endpointPaths = map[string]string{
	"/healthz": "health", "/readyz": "health", "/metrics": "figures", "/": "figures", "/api/v1/status": "figures",
	"/documents/jobs/a": "documents", "/openapi.yaml": "figures", "/collections": "documents", "/collections/jobs/ids": "documents", "/collections/jobs/count": "documents", "/collections/jobs/export": "documents",
	"/lookup?collection=jobs&id=a": "documents", "/explain?collection=jobs&id=a": "documents", "/%64ocuments/jobs/a": "nothing", "/%6Cookup?collection=jobs&id=a": "documents",
	"/debug/pprof/": "debug", "/debug/pprof/cmdline": "debug", "/%64ebug/pprof/cmdline": "debug", "//debug/pprof/cmdline": "debug", "/debug/log": "debug", "/debug/settings": "debug",
	"/guides/status.md": "figures", "/guides/none.md": "nothing", "/guides/..%2fdocs.go": "nothing", "/browse?collection=jobs": "documents",
}

// startPublicHTTP starts a daemon that serves on all addresses of this machine, and returns
// its URL on loopback.
func startPublicHTTP(t *testing.T, change func(*Options)) (base string, log *servertest.Buffer) {
	t.Helper()
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.HTTP.Address = "0.0.0.0:0"
	change(&o)
	d, log := startTestDaemon(t, o)
	waitReady(t, d)
	_, port, err := net.SplitHostPort(d.HTTPAddress())
	require.NoError(t, err)
	return o.HTTP.scheme(d.auth) + "://127.0.0.1:" + port, log
}

// answerOf requests a path, and requires that no redirection leads to another host.
func answerOf(t *testing.T, client *http.Client, url, user, password string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	switch {
	case user != "":
		request.SetBasicAuth(user, password)
	case password != "":
		request.Header.Set("Authorization", "bearer "+password)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

// Documents and debugging endpoints are not served to other hosts unless enabled, however a
// path is written.
func TestHTTPOpenToOtherHosts(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for name, c := range map[string]struct {
		change func(*Options)
		want   map[string]int
	}{
		"plain":   {func(*Options) {}, map[string]int{"documents": 403, "debug": 403}},
		"look-up": {func(o *Options) { o.HTTP.LookUp = true }, map[string]int{"documents": 200, "debug": 403}},
		"debug":   {func(o *Options) { o.HTTP.Debug = true }, map[string]int{"documents": 403, "debug": 200}},
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := startPublicHTTP(t, func(o *Options) {
				o.HTTP.Open = true
				c.change(o)
			})
			c.want["health"], c.want["figures"], c.want["nothing"] = 200, 200, 404
			for path, kind := range endpointPaths {
				require.Equal(t, c.want[kind], answerOf(t, client, base+path, "", ""), path)
			}
		})
	}
}

// Every request for documents counts for the limits of requests; health, metrics and the page
// do not.
func TestHTTPRequestsForDocumentsAreAdmitted(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.Limits.InFlight = 1
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	leave, err := d.boxcar.Admit(budget.ClientNamed("another client"), false)
	require.NoError(t, err)
	for path, kind := range endpointPaths {
		want := map[string]int{"documents": http.StatusTooManyRequests, "nothing": http.StatusNotFound}[kind]
		if want == 0 {
			want = http.StatusOK
		}
		require.Equal(t, want, answerOf(t, client, "http://"+d.HTTPAddress()+path, "", ""), path)
	}
	leave()
	require.Equal(t, http.StatusOK, answerOf(t, client, "http://"+d.HTTPAddress()+"/lookup?collection=jobs&id=a", "", ""))
}

// Exports, and requests with the priority of background tasks, are refused while others are
// still admitted.
func TestBatchOverHTTPIsRefusedFirst(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.Limits.InFlight = 4
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	const document, export = "/documents/jobs/a", "/collections/jobs/export"
	var leaves []func()
	defer func() {
		for _, leave := range leaves {
			leave()
		}
	}()
	for busy, want := range map[int]map[bool]int{2: {false: 200, true: 200}, 3: {false: 200, true: 429}} {
		for len(leaves) > 0 {
			leaves[0]()
			leaves = leaves[1:]
		}
		for range busy {
			leave, err := d.boxcar.Admit(budget.ClientNamed("another client"), false)
			require.NoError(t, err)
			leaves = append(leaves, leave)
		}
		for _, c := range []struct {
			path, priority string
			batch          bool
		}{
			{document, "", false},
			{document, "u=3, i", false},
			{document, "u=7", true},
			{"/lookup?collection=jobs&id=a", "i, u=7", true},
			{export, "", true},
			{export, "u=7", true},
			{export, "u=3", false},
		} {
			var headers []string
			if c.priority != "" {
				headers = []string{"Priority", c.priority}
			}
			require.Equal(t, want[c.batch], ask(t, d, "GET", c.path, "", headers...).Code, "%s %q with %d others", c.path, c.priority, busy)
		}
	}
	require.EqualValues(t, 4, d.boxcar.Stats().RefusedBatchBy["in_flight"])
	require.EqualValues(t, 4, d.boxcar.Stats().RefusedBy["in_flight"])
}

// With TLS the listener requires a certificate, a token, or a token sent as a password by a
// browser. Load balancers may read the health.
func TestHTTPRequiresCredentials(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	authorities := ca.File(t, dir, "ca")
	pair, err := tls.LoadX509KeyPair(ca.Files(t, dir, "client"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	bare := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}}}
	defer bare.CloseIdleConnections()
	defer known.CloseIdleConnections()

	for name, withToken := range map[string]bool{"tokens and certificates": true, "certificates": false} {
		t.Run(name, func(t *testing.T) {
			base, log := startPublicHTTP(t, func(o *Options) {
				o.Security.Certificate, o.Security.Key, o.Security.ClientCA = certificate, key, authorities
				o.HTTP.LookUp, o.HTTP.Debug = true, true
				if withToken {
					o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+testToken))
				}
			})
			require.Contains(t, base, "https://")
			for path, kind := range endpointPaths {
				if kind == "nothing" {
					continue
				}
				wantToken := http.StatusOK
				if !withToken && kind != "health" {
					wantToken = http.StatusUnauthorized
				}
				wantNothing := http.StatusUnauthorized
				if kind == "health" {
					wantNothing = http.StatusOK
				}
				require.Equal(t, http.StatusOK, answerOf(t, known, base+path, "", ""), path)
				require.Equal(t, wantToken, answerOf(t, bare, base+path, "", testToken), path)
				require.Equal(t, wantToken, answerOf(t, bare, base+path, "anybody", testToken), path)
				require.Equal(t, wantNothing, answerOf(t, bare, base+path, "", ""), path)
				require.Equal(t, wantNothing, answerOf(t, bare, base+path, "", testToken+"x"), path)
			}
			require.NotContains(t, log.String(), testToken)
		})
	}
}

// A failed handshake is logged as JSON, not as a line of text.
func TestTLSErrorsOfHTTPAreInTheLog(t *testing.T) {
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, t.TempDir(), "localhost")
	base, log := startPublicHTTP(t, func(o *Options) {
		o.HTTP.Open = true
		o.Security = Security{Certificate: certificate, Key: key}
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "https://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("this is not TLS\n"))
	require.NoError(t, err)
	servertest.Until(t.Context(), func() bool {
		return strings.Contains(log.String(), "TLS handshake error from "+conn.LocalAddr().String())
	})
	for line := range strings.Lines(log.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}
