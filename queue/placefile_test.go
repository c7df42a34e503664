package queue

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaceBytes: the fields of a place at their limits.
func TestPlaceBytes(t *testing.T) {
	h := blockHeader{tableBytes: 0x01ffffe0, dataBytes: math.MaxUint32}
	b := block{blockHeader: h}
	for _, test := range []struct {
		entry entry
		file  uint64
		want  string
	}{
		{entry{start: 1, end: 4, rawAndFlags: 9, crc: 0x0a0b0c0d}, 0, "0d0c0b0a" + "0300001200000080" + "0100"},
		{entry{end: MaxDocumentBytes, rawAndFlags: MaxDocumentBytes | flagStoredRaw, crc: math.MaxUint32}, 7, "ffffffff" + "0000000100003e80" + "0000"},
		{entry{rawAndFlags: flagDeleted, crc: 1}, 3, "0000000000000000000000000000"},
		{entry{rawAndFlags: flagLost, crc: 1}, 3, "0000000000000000000000000000"},
	} {
		p := b.placeOf(&test.entry, test.file)
		require.Equal(t, test.want, hex.EncodeToString(p[:]))
		s := &segmentFile{}
		s.header.rewrites.generation = uint32(test.file)
		l, ok := p.location(s, Address{Segment: 1, Block: 1000}, []byte("id"))
		require.Equal(t, p != Place{}, ok)
		if ok {
			require.Equal(t, test.entry.crc, l.crc)
			require.Equal(t, test.entry.rawAndFlags, l.rawAndFlags)
			require.Equal(t, test.entry.storedBytes(), l.storedBytes())
			require.EqualValues(t, 1000+0x02000000+int64(test.entry.start), l.data)
			s.header.rewrites.generation++
			_, ok = p.location(s, Address{}, []byte("id"))
			require.False(t, ok, "of another file")
		}
	}
}
