package follow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/virtualtime"
	"docstore/queue/bucket"
	"docstore/queue/shard"

	"github.com/stretchr/testify/require"
)

// withoutFiles is a bucket that does not send files.
type withoutFiles struct{ bucket.Bucket }

func (b withoutFiles) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if strings.HasPrefix(name, "file/") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

// TestLongFetchIsContact: while files are fetched the record is read, so that its age is no alarm,
// and a later target is known.
func TestLongFetchIsContact(t *testing.T) {
	shareCompressors(t)
	virtualtime.Test(t, func(t *testing.T) {
		a := newAnnouncer(t, shard.Layout{Shards: 1})
		defer a.close()
		problem := error(nil)
		options := follow.Options{
			Collection: collection.Options{FS: a.fs, VerifyInterval: -1, ScrubInterval: -1, SweepInterval: -1},
			Problem:    func() error { return problem },
		}
		f, err := follow.Open("jobs", withoutFiles{a.store}, filepath.Join(a.dir, "server"), func(*collection.Collection) {}, &options)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		opened := time.Now()
		require.True(t, f.Status().Contact().Equal(opened) || f.Status().Contact().After(opened))
		time.Sleep(time.Minute)
		a.put(1)
		a.seal()
		later := a.publish()
		time.Sleep(time.Hour)
		s := f.Status()
		require.Zero(t, s.Served)
		require.Equal(t, later, s.Target)
		require.LessOrEqual(t, time.Since(s.Contact()), 10*time.Second)
		require.Empty(t, s.Error)

		problem = errors.New("connection refused") // of an attempt, while the request is repeated
		require.Equal(t, "connection refused", f.Status().Error)
	})
}

// TestSteadyIncrementsAreContact: while increments follow each other without a pause the record is
// read, so that its age is no alarm, and a change of it is seen.
func TestSteadyIncrementsAreContact(t *testing.T) {
	shareCompressors(t)
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				a := newAnnouncer(t, shard.Layout{Shards: shards})
				defer a.close()
				r := a.serve("server")
				defer r.stop()
				r.until(a.documents, r.ready)
				for range 300 {
					a.announce(1)
					time.Sleep(200 * time.Millisecond)
					for _, f := range r.followers {
						require.LessOrEqual(t, time.Since(f.Status().Contact()), 10*time.Second)
					}
				}
			})
		})
	}
}
