package queue

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzHead: a head file that is accepted has exactly one encoding.
func FuzzHead(f *testing.F) {
	seed := Head{Queue: [16]byte{1}, Highest: 7, Sealed: 6, Digest: [32]byte{2}, Time: time.UnixMilli(1_700_000_000_000)}
	f.Add([]byte{})
	f.Add([]byte("\n"))
	f.Add(encodeHead(seed))
	seed.End = Position{Queue: seed.Queue, Next: Address{Segment: 7, Block: 4096, Index: 2}}
	f.Add(encodeHead(seed))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Head
		if h.UnmarshalText(b) == nil {
			require.True(t, bytes.Equal(b, encodeHead(h)))
		}
	})
}
