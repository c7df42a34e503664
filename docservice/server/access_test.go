package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

// Loopback HTTP has no clients to identify, and serves everything.
func TestAccessOnLoopback(t *testing.T) {
	jobs := t.TempDir()
	servertest.Fill(t, jobs, "a", `{"id":"a"}`)
	o := testOptions(t, jobs)
	o.Security.TokenFile = testcert.Write(t, t.TempDir(), "tokens", []byte("frontend "+testToken+"\n"))
	o.Security.Access = testcert.Write(t, t.TempDir(), "access", []byte("nobody nothing\n"))
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	require.Equal(t, http.StatusOK, answerOf(t, http.DefaultClient, "http://"+d.HTTPAddress()+"/documents/jobs/a", "", ""))
}

// The log and the settings may name all collections: they are for clients that may use all.
func TestAccessToDiagnostics(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	const otherToken = testToken + "-other"
	base, _ := startPublicHTTP(t, func(o *Options) {
		o.Security.Certificate, o.Security.Key = certificate, key
		o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+testToken+"\noperator "+otherToken+"\n"))
		o.Security.Access = testcert.Write(t, dir, "access", []byte("frontend jobs\noperator *\n"))
		o.HTTP.Debug = true
		o.RecentLog = func() string { return "a line of the log: 4711" }
		o.Settings = func() string { return "a setting: 4711" }
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	defer client.CloseIdleConnections()
	for token, want := range map[string]int{testToken: http.StatusForbidden, otherToken: http.StatusOK} {
		for _, path := range []string{"/debug/log", "/debug/settings", "/debug/pprof/cmdline"} {
			require.Equal(t, want, answerOf(t, client, base+path, "", token), path)
		}
		request, err := http.NewRequest(http.MethodGet, base+"/", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		require.NoError(t, err)
		page, err := io.ReadAll(response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, want == http.StatusOK, strings.Contains(string(page), "a line of the log: 4711"))
		require.Equal(t, want == http.StatusOK, strings.Contains(string(page), "a setting: 4711"))
	}
}
