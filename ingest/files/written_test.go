package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/ingest"
	"docstore/ingest/records"

	"github.com/stretchr/testify/require"
)

// TestBatchesHaveTheTimeOfTheirFile: a batch of a whole file or object is as old as the last
// modification of it. A file that grows has newer records.
func TestBatchesHaveTheTimeOfTheirFile(t *testing.T) {
	written := time.Now().Add(-time.Hour).Truncate(time.Second)
	oldest := func(opener ingest.Opener) time.Time {
		s, err := opener.Open(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		return b.Oldest
	}
	path := filepath.Join(t.TempDir(), "jobs.ndjson")
	require.NoError(t, os.WriteFile(path, []byte("{\"id\":1}\n"), 0o600))
	require.NoError(t, os.Chtimes(path, written, written))
	for _, follow := range []bool{false, true} {
		opener, err := NewOpener([]string{path}, Options{Format: records.FormatNDJSON, Follow: follow, Records: testParsing})
		require.NoError(t, err)
		require.Equal(t, follow, oldest(opener).IsZero())
		if !follow {
			require.True(t, written.Equal(oldest(opener)), oldest(opener))
		}
	}
	forEachStore(t, func(t *testing.T, o *objectsTest) {
		o.put("data/a", `{"id":1}`)
		require.WithinDuration(t, time.Now(), oldest(o.opener(Options{})), time.Hour)
	})
}
