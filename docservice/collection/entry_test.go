package collection

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/queue"
)

func TestIndexEntryBytes(t *testing.T) {
	place, err := hex.DecodeString("1d1c1b1a" + "0807060404030201" + "1f1e")
	require.NoError(t, err)
	entry := indexEntry{
		address: queue.Address{Segment: 0x01020304, Block: 0x05060708, Index: 0x090a},
		expiry:  0x0b0c0d0e, place: queue.Place(place),
	}
	b := entry.append([]byte("x"))
	assert.Equal(t, "x", string(b[:1]))
	checksum := fmt.Sprintf("%08x", bits.ReverseBytes32(0x1a1b1c1d^uint32(0x0b0c0d0e*0x9e3779b1&math.MaxUint32)))
	assert.Equal(t, "0403020108070605"+"0a09"+"0e0d0c0b"+checksum+hex.EncodeToString(place[4:]), hex.EncodeToString(b[1:]))

	got, err := decodeIndexEntry(b[1:])
	require.NoError(t, err)
	assert.Equal(t, entry, got)
}

func TestMalformedIndexEntry(t *testing.T) {
	for _, bytes := range []int{0, 20, indexEntryBytes - 1, indexEntryBytes + 1} { // 20: without a place
		_, err := decodeIndexEntry(make([]byte, bytes))
		require.ErrorIs(t, err, errIndexEntry, bytes)
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

// TestIndexValuePage compares the example of the format page with the value of the entry.
func TestIndexValuePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/format/place.md")
	require.NoError(t, err)
	var example string
	for _, line := range regexp.MustCompile(`(?m)^[0-9a-f]{8}  ([0-9a-f]+)`).FindAllStringSubmatch(string(page), -1) {
		example += line[1]
	}
	value, err := hex.DecodeString(example)
	require.NoError(t, err)
	got, err := decodeIndexEntry(value)
	require.NoError(t, err)
	require.Equal(t, queue.Address{Segment: 1, Block: 128}, got.address)

	dir := t.TempDir()
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: "none"})
	require.NoError(t, err)
	_, err = w.Append([]byte("cat"), []byte("meow"))
	require.NoError(t, err)
	_, err = w.Delete([]byte("dog"))
	require.NoError(t, err)
	w.SetCursor([]byte("line 2"))
	require.NoError(t, w.Close())
	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	defer r.Close()
	found := false
	require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		if string(e.ID) == "cat" {
			found = true
			require.Equal(t, value, entryOf(&e).append(nil))
		}
		return nil
	}))
	require.True(t, found)
}
