// Package servertest has what the tests of servers and of docserviced share.
package servertest

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/queue"
)

// Buffer is a buffer that a daemon writes to and a test reads.
type Buffer struct {
	mu struct {
		sync.Mutex
		text bytes.Buffer
	}
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}

// Fill appends documents to a queue, given as id, document, id, document. The document ""
// means a delete.
func Fill(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	writer, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			_, err = writer.Delete([]byte(pairs[i]))
		} else {
			_, err = writer.Append([]byte(pairs[i]), []byte(pairs[i+1]))
		}
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
}

// Until polls until a condition holds.
func Until(ctx context.Context, happened func() bool) {
	for !happened() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// Get requests a path from a handler.
func Get(handler http.Handler, path string) *httptest.ResponseRecorder {
	recorder, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	request.Host = "localhost"
	handler.ServeHTTP(recorder, request)
	return recorder
}

// FlipByte changes a byte of the first occurrence of text in the files of a queue, and
// returns the file.
func FlipByte(t *testing.T, queueDir, text string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(queueDir, "*"))
	require.NoError(t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if at := strings.Index(string(content), text); at >= 0 {
			content[at] ^= 0x20
			require.NoError(t, os.WriteFile(name, content, 0o600))
			return name
		}
	}
	require.Fail(t, "no file holds the text", text)
	return ""
}

// Shortly returns a context for the calls of a test, which ends after 30 s.
func Shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
