package follow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/follow"
	"docstore/docservice/readiness"
	"docstore/internal/testseed"
)

// TestProgressOfAStart reads the state of a server while it fetches its files one by one, and of one
// that makes an index for another manifest.
func TestProgressOfAStart(t *testing.T) {
	const files = 3
	rng, f := testseed.Rand(t), newFleet(t)
	for number := uint64(1); number <= files; number++ {
		f.publish(rng, false)
		f.announce(number)
	}
	f.options.Concurrency = 1
	f.bucket.gate = make(chan struct{})
	s := f.startServer("", "server")
	for fetched := range files {
		s.eventually(func(s follow.Status) bool {
			p := s.Files.Progress
			return s.Files.State == readiness.Fetching && p != nil && p.FilesDone == fetched && p.Files == files
		})
		p := s.follower.Status().Files.Progress
		require.Equal(t, fetched > 0, p.Done > 0)
		require.Less(t, p.Done, p.Total)
		f.bucket.gate <- struct{}{}
	}
	s.eventually(ready)
	require.Nil(t, s.follower.Status().Files.Progress)
}
