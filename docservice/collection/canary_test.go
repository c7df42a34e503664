package collection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/canary"
)

// The newest canary of append is known, also after a restart, and those that arrive count with the
// age at the source. Other documents with such ids are ignored.
func TestCanariesAreMeasured(t *testing.T) {
	f := newMemFixture(t)
	put := func(id string, age, sourceAge time.Duration) time.Time {
		d := canary.New(id, f.clock.Now().Add(-age))
		d.SourceAgeSeconds = sourceAge.Seconds()
		document, err := d.Encode()
		require.NoError(t, err)
		f.put(id, string(document))
		return d.Sent
	}
	const id = canary.AppendPrefix + "7"
	f.put("a", "1")
	first := put(id, time.Minute, 0)
	c := f.ready()
	require.Zero(t, c.Status().Canaries.Count, "it was there before")
	require.True(t, first.Equal(c.Status().CanarySent))

	second := put(id, 3*time.Second, 2*time.Second)
	waitFor(t, c, "the canary is served", func(s Status) bool { return s.Canaries.Count == 1 })
	require.Equal(t, 5*time.Second, c.Status().Canaries.Sum)
	require.True(t, second.Equal(c.Status().CanarySent))

	put(canary.Prefix, time.Hour, 0) // of boxcar probe
	f.put(canary.AppendPrefix, "{")
	f.put(canary.AppendPrefix+"8", `{"sent":"never"}`)
	waitFor(t, c, "all entries are served", func(s Status) bool { return s.Applied == 6 })
	status := c.Status()
	require.Equal(t, uint64(1), status.Canaries.Count)
	require.True(t, second.Equal(status.CanarySent))
	require.Empty(t, status.Faults)
	count, err := c.Count(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(1), count)
	require.NoError(t, c.Close())

	require.NoError(t, f.queueWriter().Seal())
	_, err = f.queueWriter().Delete([]byte(canary.AppendPrefix))
	require.NoError(t, err)
	require.NoError(t, f.writer.Flush())
	f.ready().Close()
	c = f.ready() // nothing is left to read
	require.True(t, second.Equal(c.Status().CanarySent))
	require.Zero(t, c.Status().Canaries.Count)
}
