package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/queue"
)

// TestAgainstAServer measures a server of ten documents for a moment, and then
// with another document in the file than the server has.
func TestAgainstAServer(t *testing.T) {
	dir := t.TempDir()
	writer, err := queue.OpenWriter(filepath.Join(dir, "queue"), nil)
	require.NoError(t, err)
	var lines []byte
	for _, id := range "abcdefghij" {
		line := []byte(`{"id":"` + string(id) + `"}`)
		_, err := writer.Append([]byte(string(id)), line)
		require.NoError(t, err)
		lines = append(append(lines, line...), '\n')
	}
	require.NoError(t, writer.Close())

	collection, err := docservice.OpenCollection("debian", filepath.Join(dir, "queue"), filepath.Join(dir, "index"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, collection.Close()) }()
	require.NoError(t, collection.WaitReady(t.Context()))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := boxcarrpc.NewServer(docservice.NewService(collection).Handle, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, boxcarrpc.ErrServerClosed)
	}()

	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("other 1\nprocess_cpu_seconds_total 1.5\n"))
	}))
	defer metrics.Close()
	file := filepath.Join(dir, "documents.ndjson")
	args := []string{
		"-servers", listener.Addr().String(), "-callers", "1,3", "-batch", "1,4",
		"-http", metrics.Listener.Addr().String(), "-duration", "10ms", "-rounds", "1", file,
	}
	require.NoError(t, os.WriteFile(file, lines, 0o600))
	require.NoError(t, run(args))

	require.NoError(t, os.WriteFile(file, []byte(`{"id":"a","x":1}`+"\n"), 0o600))
	require.ErrorContains(t, run(args), "other bytes than its line")
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"-callers", "0", "x"}, {"-batch", "", "x"}, {"-rounds", "0", "x"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
	require.Error(t, run([]string{filepath.Join(t.TempDir(), "absent.ndjson")}))
}
