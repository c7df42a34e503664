package queue_test

import (
	"bytes"
	"testing"
	"time"

	"docstore/queue"

	"github.com/stretchr/testify/require"
)

// FuzzHead: a head file that is accepted has exactly one encoding.
func FuzzHead(f *testing.F) {
	seed := queue.Head{Queue: [16]byte{1}, Highest: 7, Sealed: 6, Digest: [32]byte{2}, Time: time.UnixMilli(1_700_000_000_000)}
	f.Add([]byte{})
	f.Add([]byte("\n"))
	f.Add(encodeHead(seed))
	seed.End = queue.Position{Queue: seed.Queue, Next: queue.Address{Segment: 7, Block: 4096, Index: 2}}
	f.Add(encodeHead(seed))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h queue.Head
		if h.UnmarshalText(b) == nil {
			require.True(t, bytes.Equal(b, encodeHead(h)))
		}
	})
}
