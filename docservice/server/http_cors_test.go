package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

type corsResponse struct {
	status int
	header http.Header
}

// corsAnswer requests a path as a web page of an origin does.
func corsAnswer(t *testing.T, client *http.Client, method, url, origin, token string) corsResponse {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	request.Header.Set("Origin", origin)
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	if method == http.MethodOptions {
		request.Header.Set("Access-Control-Request-Method", http.MethodGet)
		request.Header.Set("Access-Control-Request-Headers", "authorization")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return corsResponse{response.StatusCode, response.Header}
}

func TestCORSOnLoopback(t *testing.T) {
	const page, other = "https://www.example.org", "https://www.example.org:8443"
	paths := []string{"/documents/jobs/a", "/documents/jobs/missing", "/collections", "/collections/jobs/ids", "/collections/jobs/count", "/collections/jobs/export"}
	for _, origins := range [][]string{nil, {"http://localhost:8080", page}, {"*"}} {
		t.Run(strings.Join(origins, ","), func(t *testing.T) {
			jobs := t.TempDir()
			servertest.Fill(t, jobs, "a", `{"id":"a"}`)
			o := testOptions(t, jobs)
			o.HTTP.Origins = origins
			d, _ := startTestDaemon(t, o)
			waitReady(t, d)
			answer := func(method, path, origin string) corsResponse {
				return corsAnswer(t, http.DefaultClient, method, "http://"+d.HTTPAddress()+path, origin, "")
			}
			for _, origin := range []string{page, other, "null"} {
				allow := ""
				switch {
				case len(origins) == 1:
					allow = "*"
				case len(origins) > 1 && origin == page:
					allow = page
				}
				for _, path := range paths {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						r := answer(method, path, origin)
						require.Equal(t, allow, r.header.Get("Access-Control-Allow-Origin"))
						if allow == "" {
							require.Equal(t, http.StatusForbidden, r.status, path)
							continue
						}
						require.NotEqual(t, http.StatusForbidden, r.status, path)
						require.Equal(t, "Origin", r.header.Values("Vary")[0])
						require.Equal(t, corsResponseHeaders, r.header.Get("Access-Control-Expose-Headers"))
					}
					r := answer(http.MethodOptions, path, origin)
					require.Equal(t, allow, r.header.Get("Access-Control-Allow-Origin"))
					if allow == "" {
						require.Equal(t, http.StatusForbidden, r.status, path)
						continue
					}
					require.Equal(t, http.StatusNoContent, r.status, path)
					require.Equal(t, "GET, HEAD", r.header.Get("Access-Control-Allow-Methods"))
					require.Equal(t, allow != "*", strings.Contains(r.header.Get("Access-Control-Allow-Headers"), "Authorization"))
				}
				// Nothing else is shared.
				for path, kind := range endpointPaths {
					if kind != "documents" && kind != "nothing" || strings.Contains(path, "ookup") {
						r := answer(http.MethodGet, path, origin)
						require.Equal(t, http.StatusForbidden, r.status, path)
						require.Empty(t, r.header.Get("Access-Control-Allow-Origin"), path)
					}
				}
				require.Equal(t, http.StatusForbidden, answer(http.MethodPost, "/documents/jobs", origin).status)
			}
			if origins != nil {
				r := answer(http.MethodGet, "/documents/jobs/a", "http://"+d.HTTPAddress())
				require.Equal(t, http.StatusOK, r.status, "a page of the daemon itself")
				require.Equal(t, []string{"Origin", "Accept-Encoding"}, r.header.Values("Vary"))
				require.Equal(t, http.StatusForbidden, answerTo(t, d, http.MethodGet, "evil.example", "/documents/jobs/a", http.Header{"Origin": {page}}), "another host")
				require.Equal(t, http.StatusForbidden, answerTo(t, d, http.MethodGet, "", "/documents/jobs/a", http.Header{"Sec-Fetch-Site": {"cross-site"}}), "an image or a script")
			}
		})
	}
}

// A preflight request has no token; the request that follows needs one.
func TestCORSWithTokens(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	base, _ := startPublicHTTP(t, func(o *Options) {
		o.Security.Certificate, o.Security.Key = certificate, key
		o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+testToken))
		o.HTTP.LookUp, o.HTTP.Origins = true, []string{"https://www.example.org"}
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "server"}}}
	defer client.CloseIdleConnections()
	url := base + "/documents/jobs/a"
	r := corsAnswer(t, client, http.MethodOptions, url, "https://www.example.org", "")
	require.Equal(t, http.StatusNoContent, r.status)
	require.Contains(t, r.header.Get("Access-Control-Allow-Headers"), "Authorization")
	for token, want := range map[string]int{"": http.StatusUnauthorized, testToken: http.StatusOK} {
		r = corsAnswer(t, client, http.MethodGet, url, "https://www.example.org", token)
		require.Equal(t, want, r.status)
		require.Equal(t, "https://www.example.org", r.header.Get("Access-Control-Allow-Origin"))
	}
	for _, method := range []string{http.MethodGet, http.MethodOptions} {
		r = corsAnswer(t, client, method, url, "https://other.example.org", testToken)
		require.Empty(t, r.header.Get("Access-Control-Allow-Origin"))
	}
}

func TestCheckOrigins(t *testing.T) {
	for _, origins := range [][]string{nil, {"*"}, {"https://www.example.org", "http://localhost:8080", "http://127.0.0.1", "http://[::1]:8080"}} {
		require.NoError(t, (&HTTP{Origins: origins}).checkOrigins())
	}
	for _, origin := range []string{"", "null", "www.example.org", "https://", "ftp://a", "https://a/", "https://a/b", "https://a?b", "https://a#b", "https://u@a", "https://A", "HTTPS://a", "https://a:443", "http://a:80", "https://*.a", "http://a b"} {
		require.ErrorContains(t, (&HTTP{Origins: []string{origin}}).checkOrigins(), "--http-cors", origin)
	}
	require.ErrorContains(t, (&HTTP{Origins: []string{"https://a", "*"}}).checkOrigins(), "remove the others")
}
