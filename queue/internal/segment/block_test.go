package segment

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzBlock reads arbitrary bytes as a block's header and table. The entries of an
// accepted block lie inside the block without gaps, and encoding them gives the same
// block.
func FuzzBlock(f *testing.F) {
	content, err := os.ReadFile("../queuetest/testdata/v0-none/0000000001.seg")
	require.NoError(f, err)
	for at := HeaderBytes; FrameType(content[at+4]) != FrameFooter; {
		if FrameType(content[at+4]) == FrameMark {
			at += MarkBytes
			continue
		}
		f.Add(content[at:])
		h, err := ParseBlockHeader(content[at:][:BlockHeaderBytes])
		require.NoError(f, err)
		at += int(h.Size())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) < BlockHeaderBytes {
			return
		}
		h, err := ParseBlockHeader(content[:BlockHeaderBytes])
		if err != nil || h.DataOffset() > int64(len(content)) {
			return
		}
		b := Block{Bytes: bytes.Clone(content[:h.DataOffset()])}
		sealFrame(b.Bytes)
		if b.Parse() != nil || b.RelocatedBlock { // FuzzRewrite is for these
			return
		}
		again := PendingBlock{Appended: b.Appended, count: b.Count, expiries: b.Expiries, Cursor: b.Cursor()}
		c := newChunk(&again, 0)
		again.chunks = []*Chunk{c}
		for i := range b.Count {
			e := b.Entry(i)
			c.ids = append(c.ids, b.ID(e)...)
			require.Equal(t, len(c.stored), int(e.Start))
			c.stored = append(c.stored, make([]byte, e.StoredBytes())...)
			var expiry uint32
			if at := b.Expires(i); !at.IsZero() {
				expiry = ExpirySeconds(at)
			}
			c.entries = append(c.entries, pendingEntry{
				idEnd: len(c.ids), storedEnd: len(c.stored), rawAndFlags: e.RawAndFlags, crc: e.CRC, expiry: expiry,
			})
		}
		require.Equal(t, b.Size(), again.Size())
		require.Equal(t, b.Bytes, again.Bytes(nil, b.Previous)[:h.DataOffset()])
	})
}
