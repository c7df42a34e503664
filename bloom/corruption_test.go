package bloom

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crc32c computes the checksum of the specification with the standard library only.
func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// sealed recomputes the CRCs of a modified index and trailer.
func sealed(b []byte) []byte {
	t := b[len(b)-trailerBytes:]
	indexBytes := order.Uint64(t[trailerIndexBytesAt:])
	if indexBytes <= uint64(len(b)-trailerBytes) {
		index := b[uint64(len(b)-trailerBytes)-indexBytes : len(b)-trailerBytes]
		order.PutUint32(t[trailerIndexCRCAt:], crc32c(index))
	}
	order.PutUint32(t[trailerCRCAt:], crc32c(t[trailerIndexCRCAt:]))
	return b
}

// TestDamage damages a filter of 3 pages of 64 bytes.
func TestDamage(t *testing.T) {
	keys := numbered("%05d", 150)
	whole := build(&Options{PageBytes: 64}, keys)
	f := open(t, whole)
	require.Len(t, f.pages, 3)
	indexAt := int(f.Stats().PageBytes)
	trailerAt := len(whole) - trailerBytes
	entryAt := []int{indexAt, indexAt + entryHeaderBytes, 0}
	entryAt[2] = entryAt[1] + entryHeaderBytes + len(f.index.separator(1))
	trailer := func(at int, change func(b []byte)) func(b []byte) []byte {
		return func(b []byte) []byte { change(b[trailerAt+at:]); return sealed(b) }
	}
	entry := func(i, at int, change func(b []byte)) func(b []byte) []byte {
		return func(b []byte) []byte { change(b[entryAt[i]+at:]); return sealed(b) }
	}
	set16 := func(v uint16) func([]byte) { return func(b []byte) { order.PutUint16(b, v) } }
	set32 := func(v uint32) func([]byte) { return func(b []byte) { order.PutUint32(b, v) } }
	set64 := func(v uint64) func([]byte) { return func(b []byte) { order.PutUint64(b, v) } }

	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
		err    error
		offset int
	}{
		{"none", sealed, nil, 0},
		{"empty", func([]byte) []byte { return nil }, ErrCorrupt, 0},
		{"trailer cut", func(b []byte) []byte { return b[len(b)-trailerBytes+1:] }, ErrCorrupt, 0},
		{"pages cut away", func(b []byte) []byte { return b[indexAt:] }, ErrCorrupt, trailerAt - indexAt},
		{"index cut away", func(b []byte) []byte { return b[trailerAt:] }, ErrCorrupt, 0},
		{"bad magic", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, ErrCorrupt, trailerAt},
		{"version flipped", func(b []byte) []byte { b[trailerAt+trailerVersionAt] ^= 1; return b }, ErrCorrupt, trailerAt},
		{"newer version", trailer(trailerVersionAt, set16(1)), ErrNewerVersion, 0},
		{"unknown kind", trailer(trailerKindAt, set16(2)), ErrCorrupt, trailerAt},
		{"kind 0", trailer(trailerKindAt, set16(0)), ErrCorrupt, trailerAt},
		{"reserved byte set", trailer(trailerReservedAt+7, set16(1)), ErrCorrupt, trailerAt},
		{"no hashes", trailer(trailerHashesAt, set16(0)), ErrCorrupt, trailerAt},
		{"too many hashes", trailer(trailerHashesAt, set16(maxHashes+1)), ErrCorrupt, trailerAt},
		{"odd page size", trailer(trailerPageBytesAt, set32(65)), ErrCorrupt, trailerAt},
		{"page size 0", trailer(trailerPageBytesAt, set32(0)), ErrCorrupt, trailerAt},
		{"page size huge", trailer(trailerPageBytesAt, set32(1<<31)), ErrCorrupt, trailerAt},
		{"index size huge", trailer(trailerIndexBytesAt, set64(math.MaxUint64)), ErrCorrupt, trailerAt},
		{"index size too small", trailer(trailerIndexBytesAt, set64(0)), ErrCorrupt, trailerAt},
		{"page count huge", trailer(trailerPagesAt, set32(math.MaxUint32)), ErrCorrupt, indexAt},
		{"one page less", trailer(trailerPagesAt, set32(2)), ErrCorrupt, entryAt[2]},
		{"no pages", trailer(trailerPagesAt, set32(0)), ErrCorrupt, indexAt},
		{"key count wrong", trailer(trailerKeysAt, set64(151)), ErrCorrupt, trailerAt},

		{"index flipped", func(b []byte) []byte { b[indexAt+5] ^= 1; return b }, ErrCorrupt, indexAt},
		{"offset wrong", entry(1, entryOffsetAt, set64(65)), ErrCorrupt, entryAt[1]},
		{"offset negative", entry(1, entryOffsetAt, set64(1<<63)), ErrCorrupt, entryAt[1]},
		{"page too small", entry(1, entryBytesAt, set32(32)), ErrCorrupt, entryAt[1]},
		{"last page too large", entry(2, entryBytesAt, set32(128)), ErrCorrupt, entryAt[2]},
		{"last page of odd size", entry(2, entryBytesAt, set32(24)), ErrCorrupt, entryAt[2]},
		{"last page of 4 bytes", entry(2, entryBytesAt, set32(4)), ErrCorrupt, entryAt[2]},
		{"last page of 0 bytes", entry(2, entryBytesAt, set32(0)), ErrCorrupt, entryAt[2]},
		{"page without keys", entry(1, entryKeysAt, set32(0)), ErrCorrupt, entryAt[1]},
		{"separator too long", entry(2, entrySeparatorLengthAt, set32(math.MaxUint32)), ErrCorrupt, entryAt[2]},
		{"separators not increasing", entry(2, entryHeaderBytes, func(b []byte) { b[0] = 0 }), ErrCorrupt, entryAt[2]},
		{"first separator not empty", entry(0, entrySeparatorLengthAt, set32(1)), ErrCorrupt, entryAt[0]},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open("d/table", section(c.damage(bytes.Clone(whole))))
			if c.err == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.err)
			require.Nil(t, f)
			var corruption *CorruptionError
			if errors.As(err, &corruption) {
				assert.Equal(t, "d/table", corruption.Path)
				assert.EqualValues(t, 100+c.offset, corruption.Offset, "in the file: %v", err)
			} else {
				assert.NotErrorIs(t, err, ErrCorrupt)
			}
		})
	}
}

// requireNoFalseNegative opens and loads a possibly damaged filter and probes all added
// keys. It reports whether no damage was found.
func requireNoFalseNegative(t *testing.T, data []byte, keys [][]byte, what string) bool {
	t.Helper()
	f, err := Open("table", section(data))
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt, what)
		return false
	}
	err = NewManager(1 << 30).Update(f)
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt, what)
	}
	for _, key := range keys {
		require.True(t, mayContain(f, key), "%s: false negative: %q", what, key)
	}
	return err == nil
}

// TestEveryByteFlipped: every flipped byte is detected by Open or when the page is
// loaded.
func TestEveryByteFlipped(t *testing.T) {
	keys := numbered("%05d", 150)
	whole := build(&Options{PageBytes: 64}, keys)
	require.True(t, requireNoFalseNegative(t, whole, keys, "whole"))
	for at := range whole {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(whole)
			b[at] ^= flip
			what := fmt.Sprintf("byte %d xor %#x", at, flip)
			require.False(t, requireNoFalseNegative(t, b, keys, what), what)
		}
	}
}

// TestEveryTruncation: truncation at either end is detected, as is a section longer
// than its file.
func TestEveryTruncation(t *testing.T) {
	keys := numbered("%05d", 150)
	whole := build(&Options{PageBytes: 64}, keys)
	for n := range whole {
		require.False(t, requireNoFalseNegative(t, whole[:n], keys, fmt.Sprint("cut to ", n)))
		if n > 0 {
			require.False(t, requireNoFalseNegative(t, whole[n:], keys, fmt.Sprint("cut from ", n)))
		}
	}
}

// sealedScores recomputes the CRC of modified scores.
func sealedScores(b []byte) []byte {
	if len(b) >= scoresHeaderBytes {
		order.PutUint32(b[scoresCRCAt:], crc32c(b[scoresVersionAt:]))
	}
	return b
}

// TestDamagedScores damages the scores of a filter of 2 pages.
func TestDamagedScores(t *testing.T) {
	whole := goldenScores(t)
	require.NoError(t, NewManager(0).Restore("scores", whole))
	const filterAt, talliesAt = scoresHeaderBytes, scoresHeaderBytes + scoresFilterBytes
	set32 := func(at int, v uint32) func(b []byte) []byte {
		return func(b []byte) []byte { order.PutUint32(b[at:], v); return sealedScores(b) }
	}
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
		err    error
		offset int
	}{
		{"none", sealedScores, nil, 0},
		{"empty", func([]byte) []byte { return nil }, ErrCorrupt, 0},
		{"bad magic", func(b []byte) []byte { b[0] ^= 1; return b }, ErrCorrupt, 0},
		{"version flipped", func(b []byte) []byte { b[scoresVersionAt] ^= 1; return b }, ErrCorrupt, 0},
		{"newer version", set32(scoresVersionAt, 1), ErrNewerVersion, 0},
		{"reserved byte set", set32(scoresReservedAt+2, 1), ErrCorrupt, 0},
		{"one filter too many", set32(scoresFiltersAt, 2), ErrCorrupt, len(whole)},
		{"filters huge", set32(scoresFiltersAt, math.MaxUint32), ErrCorrupt, len(whole)},
		{"no filters", set32(scoresFiltersAt, 0), ErrCorrupt, filterAt},
		{"one page too many", set32(filterAt+scoresPagesAt, 3), ErrCorrupt, filterAt},
		{"pages huge", set32(filterAt+scoresPagesAt, math.MaxUint32), ErrCorrupt, filterAt},
		{"one page too few", set32(filterAt+scoresPagesAt, 1), ErrCorrupt, talliesAt + tallyBytes},
		{"not a number", set32(talliesAt, math.Float32bits(float32(math.NaN()))), ErrCorrupt, filterAt},
		{"infinite", set32(talliesAt, math.Float32bits(float32(math.Inf(1)))), ErrCorrupt, filterAt},
		{"huge", set32(talliesAt, math.Float32bits(1<<41)), ErrCorrupt, filterAt},
		{"negative", set32(talliesAt+4, math.Float32bits(-1)), ErrCorrupt, filterAt},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := NewManager(0).Restore("d/scores", c.damage(bytes.Clone(whole)))
			if c.err == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.err)
			var corruption *CorruptionError
			if errors.As(err, &corruption) {
				assert.Equal(t, "d/scores", corruption.Path)
				assert.EqualValues(t, c.offset, corruption.Offset, "%v", err)
			}
		})
	}
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		require.ErrorIs(t, NewManager(0).Restore("scores", b), ErrCorrupt, "byte %d", at)
		require.ErrorIs(t, NewManager(0).Restore("scores", whole[:at]), ErrCorrupt, "cut to %d", at)
	}
}

func TestCorruptionErrorNamesThePlace(t *testing.T) {
	err := error(&CorruptionError{Path: "d/7.table", Offset: 4096, Reason: "page checksum 1, want 2"})
	require.EqualError(t, err, "bloom: d/7.table is corrupt at offset 4096: page checksum 1, want 2")
	require.ErrorIs(t, fmt.Errorf("open: %w", err), ErrCorrupt)
}
