package collection

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/queue"
)

// FuzzIndexEntry: an entry that is accepted has exactly one encoding.
func FuzzIndexEntry(f *testing.F) {
	f.Add([]byte{})
	entry := indexEntry{address: queue.Address{Segment: 7, Block: 4096, Index: 2}, expiry: 1, place: queue.Place{4: 100}}
	f.Add(entry.append(nil))
	entry.place = queue.Place{}
	b := entry.append(nil)
	binary.LittleEndian.PutUint32(b[14:], guard(entry.expiry)) // only a checksum: no zero place
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeIndexEntry(b)
		found, lookUp := parseLookUp(b, nil)
		require.Equal(t, err == nil, lookUp == nil)
		if err == nil {
			require.Equal(t, b, e.append(nil))
			require.Equal(t, e, found)
		}
	})
}
