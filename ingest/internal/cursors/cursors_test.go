package cursors

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var kind = Kind{Magic: "DSXX", Version: 1, Name: "tests", Foreign: errors.New("foreign"), Damaged: errors.New("damaged")}

func TestFields(t *testing.T) {
	data := append(kind.Append([]byte{'x'}), 2, 'a', 'b', 3, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0)
	data = append(binary.AppendUvarint(data, 300), "rest"...)[1:]
	decode := func(data []byte, limit uint64) error {
		version, f, err := kind.Open(data)
		if err != nil {
			return err
		}
		text, a, b, c, d := string(f.Take(f.Byte(2))), f.Uint16(), f.Uint32(), f.Uint64(), f.Uvarint(limit)
		more := f.More()
		rest := string(f.Rest(4))
		if err := f.End(); err != nil {
			return err
		}
		require.Equal(t, []any{byte(1), "ab", uint16(3), uint32(4), uint64(5), uint64(300), true, "rest"}, []any{version, text, a, b, c, d, more, rest})
		return nil
	}
	require.NoError(t, decode(data, math.MaxUint64))
	require.ErrorIs(t, decode(data, 299), kind.Damaged)
	require.ErrorIs(t, decode(append(data, 'x'), 300), kind.Damaged)
	for end := 4; end < len(data)-4; end++ {
		require.ErrorIs(t, decode(data[:end], 300), kind.Damaged)
	}
	data[5] = 3
	require.ErrorIs(t, decode(data, 300), kind.Damaged, "the byte is above its limit")
	require.ErrorIs(t, decode(data[1:], 300), kind.Foreign)
	data[4] = 2
	require.ErrorContains(t, decode(data, 300), "cursor of tests is of version 2, newer")
}
