package follow_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"docstore/docservice"
	"docstore/docservice/follow"
	"docstore/internal/testseed"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// stream is a fleet whose queue is announced while it is written.
type stream struct {
	*fleet
	rng       *rand.Rand
	writers   []*queue.Writer
	publisher *publish.Publisher
	announced map[string]string // the documents that servers without a pin serve
}

// testStream runs a test with one queue and with shards.
func testStream(t *testing.T, test func(t *testing.T, s *stream)) {
	t.Run("one queue", func(t *testing.T) { test(t, newStream(t, newFleet(t))) })
	t.Run("shards", func(t *testing.T) { test(t, newStream(t, newShardedFleet(t))) })
}

func newStream(t *testing.T, f *fleet) *stream {
	s := &stream{fleet: f, rng: testseed.Rand(t)}
	s.openWriters()
	s.put()
	s.seal()
	s.openPublisher()
	s.publishManifest()
	t.Cleanup(s.close)
	return s
}

func (s *stream) openWriters() {
	s.writers = nil
	for _, dir := range s.queues() {
		w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: "none"})
		require.NoError(s.t, err)
		s.writers = append(s.writers, w)
	}
}

func (s *stream) openPublisher() {
	var err error
	s.publisher, err = publish.OpenPublisher(s.t.Context(), s.bucket.Bucket, s.queue(), &publish.Options{Stream: true})
	require.NoError(s.t, err)
}

func (s *stream) close() {
	require.NoError(s.t, s.publisher.Close())
	s.each((*queue.Writer).Close)
}

func (s *stream) each(operation func(*queue.Writer) error) {
	for _, w := range s.writers {
		require.NoError(s.t, operation(w))
	}
}

func (s *stream) seal() { s.each((*queue.Writer).Seal) }

// putDocument appends and flushes a document.
func (s *stream) putDocument(id, document string) {
	w := s.writers[s.layout.ShardString(id)]
	_, err := w.Append([]byte(id), []byte(document))
	require.NoError(s.t, err)
	require.NoError(s.t, w.Flush())
	s.documents[id] = document
}

// put appends and flushes a few entries.
func (s *stream) put() {
	for range 1 + s.rng.IntN(5) {
		id := fmt.Sprint("id-", s.rng.IntN(ids))
		w := s.writers[s.layout.ShardString(id)]
		var err error
		if s.rng.IntN(4) == 0 {
			_, err = w.Delete([]byte(id))
			delete(s.documents, id)
		} else {
			s.documents[id] = fmt.Sprint(s.rng.Uint64())
			_, err = w.Append([]byte(id), []byte(s.documents[id]))
		}
		require.NoError(s.t, err)
	}
	s.each((*queue.Writer).Flush)
}

// extend announces an increment, if the record allows it.
func (s *stream) extend() {
	_, err := s.publisher.Check(s.t.Context())
	require.NoError(s.t, err)
	extended, err := s.publisher.Extend(s.t.Context())
	require.NoError(s.t, err)
	if !extended.Full && extended.Reason == "" {
		s.announced = maps.Clone(s.documents)
	}
}

// publishManifest publishes the sealed segments.
func (s *stream) publishManifest() {
	published, err := s.publisher.Publish(s.t.Context())
	require.NoError(s.t, err)
	s.newest = published.Ref.Number
	if published.New {
		s.states[s.newest] = maps.Clone(s.documents)
	}
	if published.Announced {
		s.announced = maps.Clone(s.documents)
	}
}

// waitForAnswers waits until a server answers as a state does.
func (s *stream) waitForAnswers(to *server, want map[string]string) {
	s.t.Helper()
	to.await(want, func() bool { return true })
}

// TestStreamModel applies random operations to a stream. A server reaches the announced
// state, or the manifest that it is pinned to, exactly.
func TestStreamModel(t *testing.T) { testStream(t, testStreamModel) }

func testStreamModel(t *testing.T, s *stream) {
	server := s.startServer("", "server")
	pinned := uint64(0)
	for range 60 {
		switch s.rng.IntN(10) {
		case 0, 1, 2, 3:
			s.put()
			s.extend()
		case 4, 5:
			s.put()
			s.seal()
			s.publishManifest()
		case 6:
			pinned = 1 + s.rng.Uint64N(s.newest)
			s.pin(pinned, "")
		case 7:
			s.unpin("")
			pinned = 0
			if s.rng.IntN(2) == 0 { // otherwise announcing remains stopped, if there is a newer manifest
				s.announce(s.newest)
				if record, err := s.log.Load(t.Context()); err == nil && record.Announced.Number == s.newest && maps.Equal(s.states[s.newest], s.documents) {
					s.announced = maps.Clone(s.documents)
				}
			}
		case 8:
			server.restart()
		case 9:
			require.NoError(t, s.publisher.Close())
			s.openPublisher()
		}
		record, err := s.log.Load(t.Context())
		require.NoError(t, err)
		want := s.announced
		if pinned > 0 {
			want = s.states[pinned]
		} else if record.Announced == record.Head && !maps.Equal(s.states[s.newest], s.documents) && record.Announced.Number == s.newest {
			s.extend() // the entries appended while a pin held are announced now
			want = s.announced
		}
		if s.rng.IntN(2) == 0 {
			s.waitForAnswers(server, want)
		}
	}
}

// openFiles returns the open segments of a server.
func openFiles(t *testing.T, s *server) (names []string) {
	t.Helper()
	for _, f := range s.followers {
		of, err := filepath.Glob(filepath.Join(f.FilesDir(), "*.open"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(of), 1)
		names = append(names, of...)
	}
	return names
}

// TestDamagedIncrementsAreReadAgain flips a byte in the open segment of a stopped server.
func TestDamagedIncrementsAreReadAgain(t *testing.T) {
	testStream(t, testDamagedIncrementsAreReadAgain)
}

func testDamagedIncrementsAreReadAgain(t *testing.T, s *stream) {
	server := s.startServer("", "server")
	for range 3 {
		s.put()
		s.extend()
	}
	s.waitForAnswers(server, s.announced)
	for range 8 {
		require.NoError(t, server.close())
		names := openFiles(t, server)
		name := names[s.rng.IntN(len(names))]
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		content[s.rng.IntN(len(content))] ^= 1
		require.NoError(t, os.WriteFile(name, content, 0o600))
		server.start()
		s.put()
		s.extend()
		s.waitForAnswers(server, s.announced)
	}
	s.seal()
	s.publishManifest()
	server.waitFor(s.newest)
}

// TestIncrementsOfAnotherHistoryAreDropped loses the increments and the queue, so that the
// next manifest does not continue what the server has.
func TestIncrementsOfAnotherHistoryAreDropped(t *testing.T) {
	testStream(t, testIncrementsOfAnotherHistoryAreDropped)
}

func testIncrementsOfAnotherHistoryAreDropped(t *testing.T, s *stream) {
	server := s.startServer("", "server")
	s.put()
	s.put()
	s.extend()
	s.waitForAnswers(server, s.announced)

	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "bucket", "increment")))
	m, _, err := publish.FindManifest(t.Context(), s.bucket.Bucket, 0, time.Now)
	require.NoError(t, err)
	require.NoError(t, s.publisher.Close())
	s.each((*queue.Writer).Close)
	require.NoError(t, os.RemoveAll(s.queue()))
	require.NoError(t, publish.Restore(t.Context(), s.bucket.Bucket, m, s.queue(), nil))
	s.documents = maps.Clone(s.states[s.newest])
	s.openWriters()
	for i := range ids { // in every shard
		s.putDocument(fmt.Sprint("id-", i), "another history")
	}
	s.seal()
	s.openPublisher()
	s.publishManifest()
	server.waitFor(s.newest)
}

// TestSealedIncrementsAreNotFetchedAgain counts the bytes that a server reads.
func TestSealedIncrementsAreNotFetchedAgain(t *testing.T) {
	testStream(t, testSealedIncrementsAreNotFetchedAgain)
}

func testSealedIncrementsAreNotFetchedAgain(t *testing.T, s *stream) {
	server := s.startServer("", "server")
	for range 5 {
		s.put()
		s.extend()
		s.waitForAnswers(server, s.announced)
	}
	s.seal()
	files := s.bucket.bytes.Load()
	s.publishManifest()
	server.waitFor(s.newest)
	// The footer was not announced.
	require.LessOrEqual(t, s.bucket.bytes.Load()-files, int64(200*len(server.followers)))
	require.Empty(t, openFiles(t, server))
}

// TestManifestWithoutSomeIncrements: a publisher of an earlier release ends after it has sealed
// one of two shards with increments. Servers continue to serve those of the other one, unless
// they are pinned to the manifest.
func TestManifestWithoutSomeIncrements(t *testing.T) {
	s := newStream(t, newShardedFleet(t))
	one, other := "id-0", "id-1"
	for s.layout.ShardString(other) == s.layout.ShardString(one) {
		other += "1"
	}
	server := s.startServer("", "server")
	want := func(ids ...string) func() bool {
		return func() bool {
			for i, id := range []string{one, other} {
				document, err := server.get(id)
				if ids[i] == "" && !errors.Is(err, docservice.ErrNotFound) || ids[i] != "" && (err != nil || document != ids[i]) {
					return false
				}
			}
			return true
		}
	}
	await := func(number uint64, holds func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc(server.followers, func(f *follow.Follower) bool { return f.Status().Served != number }) && holds()
		}, 20*time.Second, time.Millisecond)
	}
	s.putDocument(one, "first")
	s.putDocument(other, "first")
	s.seal()
	s.publishManifest()
	await(2, want("first", "first"))
	s.putDocument(one, "second")
	s.putDocument(other, "second")
	s.extend()
	await(2, want("second", "second"))
	require.NoError(t, s.writers[s.layout.ShardString(one)].Seal())
	_, err := s.publisher.Publish(t.Context())
	require.ErrorIs(t, err, publish.ErrRefused)
	// The publisher cannot see the increments, as if it did not look for them.
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "bucket", "increment")))
	s.publishManifest()
	await(3, want("second", "second"))
	server.restart()
	await(3, want("second", "second"))
	s.pin(3, "")
	await(3, want("second", "first"))
	s.unpin("")
	s.putDocument(one, "third")
	s.extend()
	await(3, want("third", "second"))
}

// TestUnreadableIncrementsAreReported: the error stays while increments cannot be read, although the
// record can.
func TestUnreadableIncrementsAreReported(t *testing.T) {
	testStream(t, func(t *testing.T, s *stream) {
		var failing atomic.Bool
		s.bucket.Bucket = bucket.NewFault(s.bucket.Bucket, func(_ context.Context, _, name string) *bucket.Failure {
			if failing.Load() && strings.HasPrefix(name, "increment/") {
				return &bucket.Failure{Err: errors.New("denied")}
			}
			return nil
		})
		server := s.startServer("", "server")
		s.waitForAnswers(server, s.announced)
		failing.Store(true)
		s.put()
		s.extend()
		server.eventually(func(s follow.Status) bool { return s.Error != "" })
		require.Never(t, func() bool { return server.follower.Status().Error == "" }, 100*time.Millisecond, time.Millisecond)
		failing.Store(false)
		s.waitForAnswers(server, s.announced)
		server.eventually(func(s follow.Status) bool { return s.Error == "" })
	})
}
