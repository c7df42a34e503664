package collection

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
)

// FuzzVerified: results that are accepted are encoded and accepted again as the same. The
// checksum of each input is made right, so that the fields behind it are reached.
func FuzzVerified(f *testing.F) {
	id := [16]byte{1, 2, 3}
	v := verifiedFiles{seen: map[segmentKey]finding{
		{id: 1}:                {verifiedFile: verifiedFile{bytes: 4096, inode: 7, modified: 9}, sound: true, durable: true},
		{id: 2, generation: 1}: {verifiedFile: verifiedFile{bytes: 1, modified: -1}, sound: true, durable: true},
	}}
	f.Add(v.encode(id))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 {
			binary.LittleEndian.PutUint32(b, checksum.Of(b[4:]))
		}
		seen, err := parseVerified(b, id)
		if err != nil {
			return
		}
		again, err := parseVerified((&verifiedFiles{seen: seen}).encode(id), id)
		require.NoError(t, err)
		require.Equal(t, seen, again)
	})
}
