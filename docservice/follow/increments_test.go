package follow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/queue"
	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// stream is a fleet whose queue is announced while it is written.
type stream struct {
	*fleet
	rng       *rand.Rand
	writer    *queue.Writer
	publisher *publish.Publisher
	announced map[string]string // the documents that servers without a pin serve
}

func newStream(t *testing.T, rng *rand.Rand) *stream {
	s := &stream{fleet: newFleet(t), rng: rng}
	s.openWriter()
	s.put()
	s.seal()
	s.openPublisher()
	s.publishManifest()
	t.Cleanup(s.close)
	return s
}

func (s *stream) openWriter() {
	var err error
	s.writer, err = queue.OpenWriter(s.queue(), &queue.WriterOptions{Codec: "none"})
	require.NoError(s.t, err)
}

func (s *stream) openPublisher() {
	var err error
	s.publisher, err = publish.OpenPublisher(s.t.Context(), s.bucket.Bucket, s.queue(), &publish.Options{Stream: true})
	require.NoError(s.t, err)
}

func (s *stream) close() {
	require.NoError(s.t, s.publisher.Close())
	require.NoError(s.t, s.writer.Close())
}

func (s *stream) seal() { require.NoError(s.t, s.writer.Seal()) }

// put appends and flushes a few entries.
func (s *stream) put() {
	for range 1 + s.rng.IntN(5) {
		id := fmt.Sprint("id-", s.rng.IntN(ids))
		var err error
		if s.rng.IntN(4) == 0 {
			_, err = s.writer.Delete([]byte(id))
			delete(s.documents, id)
		} else {
			s.documents[id] = fmt.Sprint(s.rng.Uint64())
			_, err = s.writer.Append([]byte(id), []byte(s.documents[id]))
		}
		require.NoError(s.t, err)
	}
	require.NoError(s.t, s.writer.Flush())
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
	require.Eventually(s.t, func() bool {
		documents, ok := to.read()
		return ok && maps.Equal(documents, want)
	}, 20*time.Second, time.Millisecond, "want %v; status %+v", want, to.follower.Status())
}

// TestStreamModel applies random operations to a stream. A server reaches the announced
// state, or the manifest that it is pinned to, exactly.
func TestStreamModel(t *testing.T) {
	s := newStream(t, testseed.Rand(t))
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

// openFile returns the open segment of a server.
func openFile(t *testing.T, s *server) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "state-*", "queue", "*.open"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	return names[0]
}

// TestDamagedIncrementsAreReadAgain flips a byte in the open segment of a stopped server.
func TestDamagedIncrementsAreReadAgain(t *testing.T) {
	s := newStream(t, testseed.Rand(t))
	server := s.startServer("", "server")
	for range 3 {
		s.put()
		s.extend()
	}
	s.waitForAnswers(server, s.announced)
	for range 8 {
		require.NoError(t, server.follower.Close())
		name := openFile(t, server)
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
	s := newStream(t, testseed.Rand(t))
	server := s.startServer("", "server")
	s.put()
	s.put()
	s.extend()
	s.waitForAnswers(server, s.announced)

	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "bucket", "increment")))
	m, _, err := publish.FindManifest(t.Context(), s.bucket.Bucket, 0, time.Now)
	require.NoError(t, err)
	require.NoError(t, s.publisher.Close())
	require.NoError(t, s.writer.Close())
	require.NoError(t, os.RemoveAll(s.queue()))
	require.NoError(t, publish.Restore(t.Context(), s.bucket.Bucket, m, s.queue(), nil))
	s.documents = maps.Clone(s.states[s.newest])
	s.openWriter()
	s.put()
	s.seal()
	s.openPublisher()
	s.publishManifest()
	server.waitFor(s.newest)
}

// TestSealedIncrementsAreNotFetchedAgain counts the bytes that a server reads.
func TestSealedIncrementsAreNotFetchedAgain(t *testing.T) {
	s := newStream(t, testseed.Rand(t))
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
	require.LessOrEqual(t, s.bucket.bytes.Load()-files, int64(200))
	names, err := filepath.Glob(filepath.Join(server.dir, "state-*", "queue", "*.open"))
	require.NoError(t, err)
	require.Empty(t, names)
}
