package queue

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
	content, err := os.ReadFile("../../testdata/v0-none/0000000001.seg")
	require.NoError(f, err)
	for at := headerBytes; frameType(content[at+4]) != frameFooter; {
		if frameType(content[at+4]) == frameMark {
			at += markBytes
			continue
		}
		f.Add(content[at:])
		h, err := parseBlockHeader(content[at:][:blockHeaderBytes])
		require.NoError(f, err)
		at += int(h.size())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) < blockHeaderBytes {
			return
		}
		h, err := parseBlockHeader(content[:blockHeaderBytes])
		if err != nil || h.dataOffset() > int64(len(content)) {
			return
		}
		b := block{bytes: bytes.Clone(content[:h.dataOffset()])}
		sealFrame(b.bytes)
		if b.parse() != nil || b.relocated { // FuzzRewrite is for these
			return
		}
		again := pendingBlock{appended: b.appended, count: b.count, expiries: b.expiries, cursor: b.cursor()}
		c := newChunk(&again, 0)
		again.chunks = []*chunk{c}
		for i := range b.count {
			e := b.entry(i)
			c.ids = append(c.ids, b.id(e)...)
			require.Equal(t, len(c.stored), int(e.start))
			c.stored = append(c.stored, make([]byte, e.storedBytes())...)
			var expiry uint32
			if at := b.expires(i); !at.IsZero() {
				expiry = expirySeconds(at)
			}
			c.entries = append(c.entries, pendingEntry{
				idEnd: len(c.ids), storedEnd: len(c.stored), rawAndFlags: e.rawAndFlags, crc: e.crc, expiry: expiry,
			})
		}
		require.Equal(t, b.size(), again.size())
		require.Equal(t, b.bytes, again.bytes(nil, b.previous)[:h.dataOffset()])
	})
}
