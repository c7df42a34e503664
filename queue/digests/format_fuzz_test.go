package digests

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/queue"
)

func crcOf(b []byte) uint32 { return checksum.Update(0, b) }

// FuzzParse: a file that is accepted is encoded as the same bytes. The checksum of each
// input is made right, so that the fields before it are reached.
func FuzzParse(f *testing.F) {
	rows := (&row{id: hash{1}, value: 2, expiry: 3}).append(nil)
	end, err := encodeEnd(1, make([]queue.Position, 2), crcOf(rows))
	require.NoError(f, err)
	f.Add(append(rows, end...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(b) - 4; n >= 0 {
			binary.LittleEndian.PutUint32(b[n:], crcOf(b[:n]))
		}
		rows, positions, err := parse(b)
		if err != nil {
			return
		}
		require.Len(t, b, len(rows)+len(positions)*queue.PositionBytes+trailerBytes)
		end, err := encodeEnd(int64(len(rows)/rowBytes), positions, crcOf(rows))
		require.NoError(t, err)
		require.Equal(t, b, append(rows[:len(rows):len(rows)], end...))
	})
}
