package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
)

// TestDecompressorReadsAhead: a zstd decoder reads a pipe in its own goroutine, also between
// two calls of Next. The race detector reports what they share.
func TestDecompressorReadsAhead(t *testing.T) {
	var stream bytes.Buffer
	w, err := zstd.NewWriter(&stream)
	require.NoError(t, err)
	const n = 200
	for i := range n {
		_, err := fmt.Fprintf(w, `{"id":"%d"}`+"\n", i)
		require.NoError(t, err)
		require.NoError(t, w.Flush()) // a block for each record
	}
	require.NoError(t, w.Close())
	o, err := NewOpener(nil, Options{Format: records.FormatNDJSON, Stdin: &stream})
	require.NoError(t, err)
	s, err := o.Open(t.Context(), nil)
	require.NoError(t, err)
	read := 0
	for {
		b, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		read += len(b.Records)
	}
	require.Equal(t, n, read)
	require.NoError(t, s.Close())
}
