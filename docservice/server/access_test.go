package server

import (
	"net/http"
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
