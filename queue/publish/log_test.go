package publish

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBucket(t testing.TB) *bucket.Dir {
	t.Helper()
	b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
	require.NoError(t, err)
	return b
}

func openLog(t testing.TB, b bucket.Bucket) *Log {
	t.Helper()
	l, err := OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	return l
}

// raiseEpoch is a change that a test counts.
func raiseEpoch(r Record) (Record, error) {
	r.Format = recordFormat
	r.Epoch++
	return r, nil
}

func TestConcurrentUpdatesAreNotLost(t *testing.T) {
	const writers, updates = 8, 20
	b := newBucket(t)
	var wg sync.WaitGroup
	for range writers {
		l := openLog(t, b)
		wg.Go(func() {
			for range updates {
				if _, err := l.Update(t.Context(), raiseEpoch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	record, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, writers*updates, record.Epoch)
}

// TestOpenLogFindsTheNewestCommit for each number of commits.
func TestOpenLogFindsTheNewestCommit(t *testing.T) {
	b := newBucket(t)
	for n := range uint64(70) {
		l := openLog(t, b)
		require.Equal(t, n, l.mu.commit.Number)
		_, err := l.Update(t.Context(), raiseEpoch)
		require.NoError(t, err)
	}
}

// lossy stores objects but reports that they existed, as after a lost response and a
// repeated request.
type lossy struct{ bucket.Bucket }

func (b lossy) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := b.Bucket.Put(ctx, name, body, size); err != nil {
		return err
	}
	return bucket.ErrExist
}

func TestUpdateRecognizesItsOwnCommitAfterALostResponse(t *testing.T) {
	b := newBucket(t)
	l := openLog(t, lossy{b})
	for range 3 {
		_, err := l.Update(t.Context(), raiseEpoch)
		require.NoError(t, err)
	}
	record, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, record.Epoch)
}

func TestUpdateReturnsTheErrorOfTheChange(t *testing.T) {
	b := newBucket(t)
	l := openLog(t, b)
	want := errors.New("no")
	_, err := l.Update(t.Context(), func(Record) (Record, error) { return Record{}, want })
	require.ErrorIs(t, err, want)
	_, err = b.Head(t.Context(), commitObject(1))
	require.ErrorIs(t, err, bucket.ErrNotExist)
}

func replaceObject(t *testing.T, b bucket.Bucket, name string, change func(string) string) {
	t.Helper()
	content, err := bucket.ReadAll(t.Context(), b, name, 1<<20)
	require.NoError(t, err)
	changed := change(string(content))
	require.NotEqual(t, string(content), changed)
	require.NoError(t, b.Delete(t.Context(), name))
	require.NoError(t, b.Put(t.Context(), name, strings.NewReader(changed), int64(len(changed))))
}

func TestLogRefusesChangedCommits(t *testing.T) {
	for name, test := range map[string]struct {
		change func(string) string
		want   error
	}{
		"truncated":     {func(s string) string { return s[:len(s)/2] }, ErrCorrupt},
		"other number":  {func(s string) string { return strings.Replace(s, `"number":2`, `"number":3`, 1) }, ErrCorrupt},
		"long digest":   {func(s string) string { return strings.Replace(s, `"previous":"`, `"previous":"00`, 1) }, ErrCorrupt},
		"no digest":     {func(s string) string { return strings.Replace(s, `"previous":"`, `"previous":"g`, 1) }, ErrCorrupt},
		"newer version": {func(s string) string { return strings.Replace(s, `"format":1`, `"format":2`, 1) }, ErrNewerVersion},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket(t)
			reader := openLog(t, b)
			for range 2 {
				_, err := openLog(t, b).Update(t.Context(), raiseEpoch)
				require.NoError(t, err)
			}
			replaceObject(t, b, commitObject(2), test.change)
			_, err := reader.Load(t.Context())
			require.ErrorIs(t, err, test.want)
		})
	}

	b := newBucket(t)
	reader, writer := openLog(t, b), openLog(t, b)
	for range 2 {
		_, err := writer.Update(t.Context(), raiseEpoch)
		require.NoError(t, err)
	}
	replaceObject(t, b, commitObject(1), func(s string) string { return strings.Replace(s, `"epoch":1`, `"epoch":7`, 1) })
	_, err := reader.Load(t.Context())
	require.ErrorContains(t, err, "does not follow the commit before it")
}
