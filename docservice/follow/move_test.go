package follow_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// watchAnswers reads an id until the returned function is called. Each answer must be
// accepted.
func (s *server) watchAnswers(id string, accept func(document string) bool) (stop func()) {
	ctx, cancel := context.WithCancel(s.fleet.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			if document, err := s.get(id); err != nil || !accept(document) {
				s.fleet.t.Errorf("got %q, %v", document, err)
				return
			}
		}
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// TestEntriesOfBadManifestsAreNotServed: a bad manifest lies between the served one and the
// next that is announced.
func TestEntriesOfBadManifestsAreNotServed(t *testing.T) {
	f := newFleet(t)
	f.publishEntries(false, nil, [2]string{"id-0", "good"})
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	stop := s.watchAnswers("id-0", func(document string) bool { return document != "bad" })
	for round := range 3 {
		f.publishEntries(false, nil, [2]string{"id-0", "bad"}, [2]string{fmt.Sprint("id-", 1+round), "x"})
		f.change(f.newest, publish.Record.Refuse)
		f.publishEntries(false, nil, [2]string{"id-0", fmt.Sprint("good ", round)})
		f.announce(f.newest)
		s.waitFor(f.newest)
	}
	stop()
}

// TestAnotherQueueIsServedWhenItIsReady, and the one before it again after a rollback, which
// needs no download.
func TestAnotherQueueIsServedWhenItIsReady(t *testing.T) {
	f := newFleet(t)
	for i := range ids {
		f.publishEntries(false, nil, [2]string{fmt.Sprint("id-", i), "old"})
	}
	f.announce(f.newest)
	old := f.newest
	s := f.startServer("", "server")
	s.waitFor(old)
	f.queueName, f.documents = "queue-2", map[string]string{}
	replace := &publish.Options{NewGeneration: true}
	f.publishEntries(false, replace, [2]string{"id-0", "new"})
	s.restart()
	s.waitFor(old)
	stop := s.watchAnswers("id-0", func(document string) bool { return document == "old" || document == "new" })
	f.announce(f.newest)
	s.waitFor(f.newest)
	f.publishEntries(false, nil, [2]string{"id-1", "new"})
	f.announce(f.newest)
	s.waitFor(f.newest)

	gets := f.bucket.files.Load()
	f.rollback(old)
	s.waitFor(old)
	require.Equal(t, gets, f.bucket.files.Load(), "files that the checkpoint has were fetched")
	stop()
}
