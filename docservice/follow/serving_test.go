package follow_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/follow"
	"docstore/docservice/readiness"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/publish"
)

// eventually waits for a condition on the status.
func (s *server) eventually(holds func(follow.Status) bool) {
	s.fleet.t.Helper()
	if !assert.Eventually(s.fleet.t, func() bool { return holds(s.follower.Status()) }, 20*time.Second, time.Millisecond) {
		s.fleet.t.Fatalf("status: %+v", s.follower.Status())
	}
}

func ready(s follow.Status) bool { return s.Files.IsReady() }

// TestEmptyServerIsNotReadyAndFindsNothingMissing starts a server that has no files, while
// the bucket is down.
func TestEmptyServerIsNotReadyAndFindsNothingMissing(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.bucket.down.Store(true)
	s := f.startServer("", "server")
	unready := func() {
		require.Never(t, func() bool { return ready(s.follower.Status()) }, 50*time.Millisecond, time.Millisecond)
		_, err := s.get("id-0")
		require.ErrorIs(t, err, docservice.ErrUnavailable)
	}
	unready()
	f.bucket.down.Store(false)
	s.eventually(func(s follow.Status) bool { return s.Files.State == readiness.WaitingForManifest })
	unready()
	f.announce(1)
	s.waitFor(1)
	s.eventually(ready)
}

// TestAnnouncementsDoNotMakeServersUnready watches the readiness of a server during moves and
// a restart without the bucket.
func TestAnnouncementsDoNotMakeServersUnready(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.eventually(ready)
	for number := uint64(2); number < 5; number++ {
		f.publish(rng, false)
		f.announce(number)
		s.eventually(func(status follow.Status) bool {
			require.True(t, status.Files.IsReady())
			return status.Served == number
		})
	}
	f.publish(rng, false)
	f.bucket.down.Store(true)
	f.announce(5)
	s.restart()
	s.eventually(ready)
	s.waitFor(4)
	f.bucket.down.Store(false)
	s.waitFor(5)
}

// TestOnlyStalenessMakesServersUnready advances the clock while the bucket is down.
func TestOnlyStalenessMakesServersUnready(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.announce(1)
	var ahead atomic.Int64
	f.options.MaxStaleness = time.Minute
	f.options.Collection.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := f.startServer("", "server")
	s.eventually(ready)
	f.bucket.down.Store(true)
	s.eventually(func(s follow.Status) bool { return s.Error != "" })
	require.True(t, ready(s.follower.Status()))
	ahead.Store(int64(2 * time.Minute))
	require.Contains(t, s.follower.Status().Files.Cause, "--max-staleness")
	f.bucket.down.Store(false)
	s.eventually(ready)
}

// TestDiskLimit announces a manifest that does not fit.
func TestDiskLimit(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	f.publish(rng, false)
	f.announce(2)
	s.waitFor(2)
	checkpoint := filepath.Join(s.dir, "checkpoint-0000000001")
	require.DirExists(t, checkpoint)
	require.NoError(t, s.follower.Close())
	used, err := follow.NewDisk(vfs.OS, s.dir, 0).Used()
	require.NoError(t, err)

	f.options.Disk = follow.NewDisk(vfs.OS, s.dir, used/2)
	s.start()
	s.waitFor(2)
	f.publish(rng, false)
	f.announce(3)
	s.eventually(func(s follow.Status) bool { return s.Error != "" })
	require.Contains(t, s.follower.Status().Error, "raise --max-disk")
	require.NoDirExists(t, checkpoint)
	s.waitFor(2)
	s.eventually(ready)

	require.NoError(t, s.follower.Close())
	f.options.Disk = follow.NewDisk(vfs.OS, s.dir, used+1<<30)
	s.start()
	s.waitFor(3)
}

// TestRestartFetchesNothing restarts a server, and then one of whose files some are missing.
func TestRestartFetchesNothing(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	for range 5 {
		f.publish(rng, false)
	}
	f.announce(5)
	s := f.startServer("", "server")
	s.waitFor(5)
	s.restart()
	s.waitFor(5)
	s.eventually(func(s follow.Status) bool { return !s.LastContact.IsZero() })
	require.Zero(t, s.follower.Status().BucketBytes)
	require.NoError(t, s.follower.Close())
	path := filepath.Join(s.dir, "state-0001", "queue", "0000000003.seg")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	s.start()
	s.waitFor(5)
	s.eventually(func(s follow.Status) bool { return s.BucketBytes == info.Size() })
}

// TestDamagedFileIsFetchedAgain changes a byte in each part of a served segment. No answer is
// wrong, and the file is fetched again.
func TestDamagedFileIsFetchedAgain(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.options.Collection.VerifyInterval, f.options.Collection.QuarantineAfter = 2*time.Millisecond, 2*time.Millisecond
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	path := filepath.Join(s.dir, "state-0001", "queue", "0000000001.seg")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for part := range 12 {
		require.NoError(t, s.follower.Close())
		damaged := bytes.Clone(content)
		damaged[part*(len(content)-1)/11] ^= 1
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		s.start()
		require.Eventually(t, func() bool {
			for i := range ids {
				id := fmt.Sprint("id-", i)
				want, exists := f.states[1][id]
				got, err := s.get(id)
				require.True(t, errors.Is(err, docservice.ErrUnavailable) || exists && got == want || !exists && errors.Is(err, docservice.ErrNotFound),
					"byte in part %d: %s is %q, %v; want %q, %v", part, id, got, err, want, exists)
			}
			now, err := os.ReadFile(path)
			return err == nil && bytes.Equal(now, content)
		}, 60*time.Second, time.Millisecond, "part %d", part)
		s.waitFor(1)
		s.eventually(ready)
	}
}

// TestDamagedObjectIsNotServed announces a manifest whose file is damaged in the bucket. The
// one before is served until the object is replaced.
func TestDamagedObjectIsNotServed(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	f.publish(rng, false)
	m, _, err := publish.FindManifest(t.Context(), f.bucket, 2, time.Now)
	require.NoError(t, err)
	objects, err := filepath.Glob(filepath.Join(f.dir, "bucket", "file", "*"+m.Files[1].Digest.String()))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	content, err := os.ReadFile(objects[0])
	require.NoError(t, err)
	damaged := bytes.Clone(content)
	damaged[len(damaged)/2] ^= 1
	replace := func(content []byte) {
		require.NoError(t, os.Remove(objects[0]))
		require.NoError(t, os.WriteFile(objects[0], content, 0o600))
	}
	replace(damaged)
	f.announce(2)
	s.eventually(func(s follow.Status) bool { return s.Error != "" })
	require.Contains(t, s.follower.Status().Error, "damaged")
	s.waitFor(1)
	s.eventually(ready)
	replace(content)
	s.waitFor(2)
}

// TestGetsDoNotFailWhileTheBucketFails publishes, announces, pins and compacts while the
// bucket fails for random times. An id that does not change is read all the time.
func TestGetsDoNotFailWhileTheBucketFails(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publishEntries(false, nil, [2]string{"constant", "always"})
	delete(f.documents, "constant") // waitFor does not read it
	delete(f.states[1], "constant")
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	stop := s.watchAnswers("constant", func(document string) bool { return document == "always" })
	for range 8 {
		f.bucket.down.Store(rng.IntN(2) == 0)
		f.publish(rng, rng.IntN(4) == 0)
		if rng.IntN(4) == 0 {
			f.pin(1+rng.Uint64N(f.newest), "")
		} else {
			f.unpin("")
			f.announce(f.newest)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		require.True(t, ready(s.follower.Status()))
	}
	f.bucket.down.Store(false)
	record, err := f.log.Load(t.Context())
	require.NoError(t, err)
	s.waitFor(record.Target("").Number)
	stop()
}
