package docservice

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/queue"
)

func TestIndexEntryBytes(t *testing.T) {
	entry := indexEntry{
		address:     queue.Address{Segment: 0x01020304, Block: 0x05060708, Index: 0x090a},
		expiry:      0x0b0c0d0e,
		storedBytes: 0x0f101112,
	}
	b := entry.append([]byte("x"))
	assert.Equal(t, "x", string(b[:1]))
	assert.Equal(t, "0403020108070605"+"0a09"+"0000"+"0e0d0c0b"+"1211100f", hex.EncodeToString(b[1:]))
	require.Len(t, b[1:], indexEntryBytes)

	got, err := decodeIndexEntry(b[1:])
	require.NoError(t, err)
	assert.Equal(t, entry, got)
}

func TestMalformedIndexEntry(t *testing.T) {
	good := indexEntry{storedBytes: 1}.append(nil)
	for name, b := range map[string][]byte{
		"empty":    nil,
		"short":    good[:indexEntryBytes-1],
		"long":     append(good[:indexEntryBytes:indexEntryBytes], 0),
		"low flag": append(append(append([]byte{}, good[:10]...), 1, 0), good[12:]...),
		"high flag": append(append(append([]byte{}, good[:10]...), 0, 0x80),
			good[12:]...),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeIndexEntry(b)
			require.ErrorIs(t, err, errIndexEntry)
		})
	}
}

func TestExpirySeconds(t *testing.T) {
	for _, test := range []struct {
		name string
		at   time.Time
		want uint32
	}{
		{"never", time.Time{}, 0},
		{"a whole second", time.Unix(1_700_000_000, 0), 1_700_000_000},
		{"rounded up, so that nothing expires early", time.Unix(1_700_000_000, 1), 1_700_000_001},
		{"the first second is not never", time.Unix(0, 0), 1},
		{"before 1970", time.Unix(-5, 0), 1},
		{"the last that fits", time.Unix(math.MaxUint32, 0), math.MaxUint32},
		{"beyond what fits", time.Unix(math.MaxUint32+1, 0), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, expirySeconds(test.at))
		})
	}
}

func TestExpired(t *testing.T) {
	entry := indexEntry{expiry: 100}
	assert.False(t, entry.expired(time.Unix(99, 999_999_999)))
	assert.True(t, entry.expired(time.Unix(100, 0)))
	assert.False(t, indexEntry{}.expired(time.Unix(math.MaxInt32, 0)), "no expiry")
}
