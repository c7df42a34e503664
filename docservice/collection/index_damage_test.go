package collection

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// TestDamagedIndexIsNeverWrongAboutAnID damages a table of a served index in place, after
// all of it has been read and verified, repeatedly and at random. A document that exists is
// then found or unavailable, never "not found"; one that was deleted or has expired is not found or
// unavailable.
func TestDamagedIndexIsNeverWrongAboutAnID(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "damaged indexes")
	f := newFixture(t, vfs.OS, t.TempDir())
	f.options.RetryInterval = time.Hour // no replacement is built
	const ids = 200
	exists := func(n int) bool { return n%3 == 1 }
	deleted := func(n int) bool { return n%3 == 0 }
	idOf := func(n int) []byte { return fmt.Appendf(nil, "doc-%d", n) }
	var last queue.Address
	for n := range ids {
		var err error
		expires := f.clock.Now().Add(2 * time.Hour)
		if !exists(n) {
			expires = f.clock.Now().Add(time.Hour)
		}
		last, err = f.queueWriter().Put(queue.Record{ID: idOf(n), Document: []byte(documentOf(string(idOf(n)))), Expires: expires})
		require.NoError(t, err)
		if deleted(n) {
			last, err = f.writer.Delete(idOf(n))
			require.NoError(t, err)
		}
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	s := c.serving.Load()
	require.NoError(t, s.index.Flush())
	f.clock.advance(time.Hour + time.Minute) // less than sweepGrace after the expiry
	path := f.indexFiles(firstIndex, ".table")[0]
	sound, err := os.ReadFile(path)
	require.NoError(t, err)

	check := func(id []byte, n int, document []byte, err error) {
		switch {
		case err == nil:
			require.True(t, exists(n), "%s", id)
			require.Equal(t, documentOf(string(id)), string(document))
		case exists(n):
			require.ErrorIs(t, err, docservice.ErrUnavailable, "%s", id)
		default:
			require.True(t, errors.Is(err, docservice.ErrNotFound) || errors.Is(err, docservice.ErrUnavailable), "%s: %v", id, err)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer file.Close()
	for range crashtest.Share(30, 2000) {
		tally.Case()
		at := random.IntN(len(sound))
		bytes := make([]byte, min(1+random.IntN(1<<random.IntN(12)), len(sound)-at))
		switch random.IntN(3) {
		case 0: // zeros
		case 1:
			for i := range bytes {
				bytes[i] = byte(random.Uint32())
			}
		case 2:
			bytes = bytes[:1]
			bytes[0] = sound[at] ^ 1<<random.IntN(8)
		}
		_, err := file.WriteAt(bytes, int64(at))
		require.NoError(t, err)
		var all [][]byte
		for n := range ids {
			id := idOf(n)
			all = append(all, id)
			document, err := c.Get(nil, id)
			check(id, n, document, err)
		}
		_, answers, err := c.GetMany(nil, all, 1<<30)
		require.NoError(t, err)
		for n, answer := range answers {
			check(all[n], n, answer.Document, answer.Err)
		}
		seen := map[string]bool{}
		err = c.Scan(t.Context(), docservice.ScanOptions{}, func(id []byte, answer Answer) error {
			if answer.Err == nil {
				require.Equal(t, documentOf(string(id)), string(answer.Document))
			}
			seen[string(id)] = true
			return nil
		})
		if err == nil {
			for n := range ids {
				require.Equal(t, exists(n), seen[string(idOf(n))], "%s", idOf(n))
			}
		} else {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
		}
		require.Zero(t, c.Status().Gets.Failed)
		s.indexing.Lock()
		s.indexing.soonest = 1 // an entry may have expired
		s.indexing.Unlock()
		_ = s.sweeper.sweep(t.Context()) // damage ends it
		require.Zero(t, c.Status().Swept, "damage looks like an expiry")

		_, err = file.WriteAt(sound, 0)
		require.NoError(t, err)
		s.health.mu.Lock()
		s.health.mu.faults.index = nil // as if it had not been found
		s.health.stateChanged()
		s.health.mu.Unlock()
	}
}
