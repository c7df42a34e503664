package segment

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaceBytes: the fields of a place at their limits.
func TestPlaceBytes(t *testing.T) {
	h := BlockHeader{tableBytes: 0x01ffffe0, DataBytes: math.MaxUint32}
	b := Block{BlockHeader: h}
	for _, test := range []struct {
		entry Entry
		file  uint64
		want  string
	}{
		{Entry{Start: 1, End: 4, RawAndFlags: 9, CRC: 0x0a0b0c0d}, 0, "0d0c0b0a" + "0300001200000080" + "0100"},
		{Entry{End: MaxDocumentBytes, RawAndFlags: MaxDocumentBytes | FlagStoredRaw, CRC: math.MaxUint32}, 7, "ffffffff" + "0000000100003e80" + "0000"},
		{Entry{RawAndFlags: FlagDeleted, CRC: 1}, 3, "0000000000000000000000000000"},
		{Entry{RawAndFlags: FlagLost, CRC: 1}, 3, "0000000000000000000000000000"},
	} {
		p := b.PlaceOf(&test.entry, test.file)
		require.Equal(t, test.want, hex.EncodeToString(p[:]))
		s := &File{}
		s.Header.Rewrites.Generation = uint32(test.file)
		l, ok := p.Location(s, Address{Segment: 1, Block: 1000}, []byte("id"))
		require.Equal(t, p != Place{}, ok)
		if ok {
			require.Equal(t, test.entry.CRC, l.CRC)
			require.Equal(t, test.entry.RawAndFlags, l.RawAndFlags)
			require.Equal(t, test.entry.StoredBytes(), l.StoredBytes())
			require.EqualValues(t, 1000+0x02000000+int64(test.entry.Start), l.Data)
			s.Header.Rewrites.Generation++
			_, ok = p.Location(s, Address{}, []byte("id"))
			require.False(t, ok, "of another file")
		}
	}
}
