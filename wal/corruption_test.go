package wal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestDamage damages a log of 20 records of 1,000 bytes that was never synced, or was
// synced after its 10th record.
func TestDamage(t *testing.T) {
	const records = 20
	flip := func(b []byte, at int) []byte {
		b[at] ^= 0x04
		return b
	}
	for _, c := range []struct {
		name    string
		synced  bool
		damage  func(f *fixture, b []byte) []byte
		survive int
		torn    bool
		err     error
		offset  func(f *fixture) int // of the corruption
	}{
		{name: "none", survive: records,
			damage: func(_ *fixture, b []byte) []byte { return b }},
		{name: "unused space behind the end", survive: records,
			damage: func(_ *fixture, b []byte) []byte { return append(b, make([]byte, 10_000)...) }},
		{name: "garbage behind the end", survive: records, torn: true,
			damage: func(_ *fixture, b []byte) []byte { return append(b, "garbage"...) }},
		{name: "garbage behind unused space", survive: records, torn: true,
			damage: func(_ *fixture, b []byte) []byte { return append(append(b, make([]byte, 10_000)...), 1) }},
		{name: "a record of another log behind the end", survive: records, torn: true,
			damage: func(f *fixture, b []byte) []byte {
				start := len(b)
				b = append(b, b[f.starts[19]:]...)
				other := *f
				other.header.id[3]++
				order.PutUint64(b[start+recordSequenceAt:], 121)
				other.seal(b, start)
				return b
			}},

		{name: "last record cut by a byte", survive: 19, torn: true,
			damage: func(_ *fixture, b []byte) []byte { return b[:len(b)-1] }},
		{name: "last record cut in its header", survive: 19, torn: true,
			damage: func(f *fixture, b []byte) []byte { return b[:f.starts[19]+10] }},
		{name: "last record cut away", survive: 19,
			damage: func(f *fixture, b []byte) []byte { return b[:f.starts[19]] }},
		{name: "last record half copied", survive: 19, torn: true,
			damage: func(f *fixture, b []byte) []byte { clear(b[f.starts[19]+500:]); return b }},
		{name: "a page lost", survive: 3, torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[4096:8192]); return b }},
		{name: "all pages lost behind the first", survive: 3, torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[4096:]); return b }},

		{name: "record checksum flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordCRCAt) }},
		{name: "record length flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordLengthAt) }},
		{name: "record length huge", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { order.PutUint32(b[f.starts[5]+recordLengthAt:], 1<<32-1); return b }},
		{name: "record type flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordTypeAt) }},
		{name: "record reserved byte flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordReservedAt) }},
		{name: "record sequence flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordSequenceAt) }},
		{name: "record payload flipped", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+recordHeaderBytes+77) }},
		{name: "record never written", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { clear(b[f.starts[5]:f.starts[6]]); return b }},

		// Valid records that no writer produces.
		{name: "record overwritten by the previous one", survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte {
				copy(b[f.starts[5]:], b[f.starts[4]:f.starts[5]])
				return b
			},
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "unknown type", survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte {
				b[f.starts[5]+recordTypeAt] = 3
				f.seal(b, f.starts[5])
				return b
			},
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "type 0 with a checksum", survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte {
				b[f.starts[5]+recordTypeAt] = typeNone
				f.seal(b, f.starts[5])
				return b
			},
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "reserved byte of a record set", survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte {
				b[f.starts[5]+recordReservedAt+1] = 1
				f.seal(b, f.starts[5])
				return b
			},
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "mark that covers bytes after itself", synced: true, survive: 10, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte {
				order.PutUint64(b[f.marks[0]+recordHeaderBytes+markOffsetAt:], uint64(f.marks[0])+1)
				f.seal(b, f.marks[0])
				return b
			},
			offset: func(f *fixture) int { return f.marks[0] }},

		// Below and above the synced offset.
		{name: "record flipped below the mark", synced: true, survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[5]+500) },
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "last record flipped below the mark", synced: true, survive: 9, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[9]) },
			offset: func(f *fixture) int { return f.starts[9] }},
		{name: "page lost below the mark", synced: true, survive: 3, err: ErrCorrupt,
			damage: func(_ *fixture, b []byte) []byte { clear(b[4096:8192]); return b },
			offset: func(f *fixture) int { return f.starts[3] }},
		{name: "all pages lost below the page of the mark", synced: true, survive: 0, err: ErrCorrupt,
			damage: func(_ *fixture, b []byte) []byte { clear(b[:8192]); return b },
			offset: func(*fixture) int { return 0 }},
		{name: "header page lost below the mark", synced: true, survive: 0, err: ErrCorrupt,
			damage: func(_ *fixture, b []byte) []byte { clear(b[:4096]); return b },
			offset: func(*fixture) int { return 0 }},
		{name: "record length huge below the mark", synced: true, survive: 5, err: ErrCorrupt,
			damage: func(f *fixture, b []byte) []byte { order.PutUint32(b[f.starts[5]+recordLengthAt:], 1<<32-1); return b },
			offset: func(f *fixture) int { return f.starts[5] }},
		{name: "mark flipped", synced: true, survive: 10, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.marks[0]+recordHeaderBytes) }},
		{name: "record flipped above the mark", synced: true, survive: 15, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(b, f.starts[15]+500) }},
		{name: "page lost above the mark", synced: true, survive: 11, torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[12288:16384]); return b }},
		{name: "record and mark both flipped", synced: true, survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return flip(flip(b, f.starts[5]), f.marks[0]) }},
		{name: "mark of another log behind a flipped record", survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte {
				other := *f
				other.header.id[0]++
				start := len(b)
				b = append(b, make([]byte, markBytes)...)
				copy(b[start+recordLengthAt:], markPattern)
				copy(b[start+recordHeaderBytes:], other.header.id[:])
				order.PutUint64(b[start+recordHeaderBytes+markOffsetAt:], uint64(start))
				other.seal(b, start)
				return flip(b, f.starts[5])
			}},
		{name: "log cut inside the synced part", synced: true, survive: 5, torn: true,
			damage: func(f *fixture, b []byte) []byte { return b[:f.starts[5]+500] }},

		// The header.
		{name: "empty file", torn: true,
			damage: func(_ *fixture, b []byte) []byte { return nil }},
		{name: "header cut", torn: true,
			damage: func(_ *fixture, b []byte) []byte { return b[:headerBytes-1] }},
		{name: "header only",
			damage: func(_ *fixture, b []byte) []byte { return b[:headerBytes] }},
		{name: "header and part of a record", torn: true,
			damage: func(_ *fixture, b []byte) []byte { return b[:headerBytes+3] }},
		{name: "header never written", torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b); return b }},
		{name: "header page lost", torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[:4096]); return b }},
		{name: "header page torn", torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[headerIDAt+5:]); return b }},
		{name: "header not finished, before bytes of a previous log", torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[headerIDAt+15 : headerBytes]); return b }},
		{name: "header erased, before bytes of a previous log", torn: true,
			damage: func(_ *fixture, b []byte) []byte { clear(b[:headerBytes]); return b }},
		{name: "header erased below the mark", synced: true, err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { clear(b[:headerBytes]); return b }},
		{name: "bad magic", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { return flip(b, 0) }},
		{name: "header checksum flipped", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { return flip(b, headerCRCAt) }},
		{name: "header version flipped", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { return flip(b, headerVersionAt) }},
		{name: "header number flipped", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { return flip(b, headerNumberAt) }},
		{name: "header id flipped", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: func(_ *fixture, b []byte) []byte { return flip(b, headerIDAt) }},
		{name: "another number", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: sealedHeader(func(b []byte) { b[headerNumberAt]++ })},
		{name: "another kind", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: sealedHeader(func(b []byte) { b[headerKindAt]++ })},
		{name: "reserved byte of the header set", err: ErrCorrupt, offset: func(*fixture) int { return 0 },
			damage: sealedHeader(func(b []byte) { b[headerReservedAt+3] = 1 })},
		{name: "another id", torn: true,
			damage: sealedHeader(func(b []byte) { b[headerIDAt]++ })},
		{name: "newer version", err: ErrNewerVersion,
			damage: sealedHeader(func(b []byte) { b[headerVersionAt]++ })},
	} {
		t.Run(c.name, func(t *testing.T) {
			var syncAfter []int
			if c.synced {
				syncAfter = []int{10}
			}
			f := newFixture(t, records, 1000, syncAfter...)
			fs := vfs.NewMem()
			writeFile(t, fs, "7.wal", c.damage(f, bytes.Clone(f.bytes)))
			var got []record
			result, err := Replay("7.wal", &Options{FS: fs, Number: 7}, func(sequence uint64, payload []byte) error {
				got = append(got, record{sequence, bytes.Clone(payload)})
				return nil
			})

			requirePrefix(t, f.records, got)
			assert.Equal(t, c.survive, len(got), "records that survive")
			assert.Equal(t, c.survive, result.Records)
			if c.err == nil {
				require.NoError(t, err)
				assert.Equal(t, c.torn, result.Torn, "torn")
				requireRecovery(t, fs, got)
				return
			}
			require.ErrorIs(t, err, c.err)
			var corruption *CorruptionError
			if errors.As(err, &corruption) {
				assert.Equal(t, "7.wal", corruption.Path)
				assert.EqualValues(t, c.offset(f), corruption.Offset)
				assert.NotEmpty(t, corruption.Reason)
			} else {
				assert.NotErrorIs(t, err, ErrCorrupt)
			}
		})
	}
}

// sealedHeader changes a header and puts the right CRC on it.
func sealedHeader(change func(b []byte)) func(*fixture, []byte) []byte {
	return func(_ *fixture, b []byte) []byte {
		change(b)
		order.PutUint32(b[headerCRCAt:], crc32c(b[headerVersionAt:headerBytes]))
		return b
	}
}

// requireRecovery writes the replayed records and a new one to the next log, as a store
// does, and requires that log to hold all of them.
func requireRecovery(t *testing.T, fs vfs.FS, survivors []record) {
	t.Helper()
	w, err := Create("next.wal", 8, &Options{FS: fs})
	require.NoError(t, err)
	all := append([]record(nil), survivors...)
	sequence := uint64(100)
	if len(all) > 0 {
		sequence = all[len(all)-1].sequence
	}
	for i := range 3 {
		all = append(all, makeRecord(sequence+uint64(i)+1, 50))
	}
	for _, r := range all {
		require.NoError(t, w.Append(r.sequence, r.payload))
	}
	require.NoError(t, w.Sync())
	require.NoError(t, w.Close())
	got, result, err := replayAll(fs, "next.wal")
	require.NoError(t, err)
	require.False(t, result.Torn)
	require.Equal(t, len(all), len(got))
	requirePrefix(t, all, got)
}

// TestEveryByteFlipped flips every byte of a small log. Replay must return a prefix of
// its records or an error; below the mark, an error.
func TestEveryByteFlipped(t *testing.T) {
	f := newFixture(t, 6, 10, 3)
	for at := range f.bytes {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(f.bytes)
			b[at] ^= flip
			got, result, err := replayBytes(t, b)
			where := fmt.Sprintf("byte %d xor %#x", at, flip)
			requirePrefix(t, f.records, got)
			switch {
			case at < f.marks[0]:
				require.ErrorIs(t, err, ErrCorrupt, where)
			case at < f.marks[0]+markBytes:
				require.NoError(t, err, where)
				require.Equal(t, 3, len(got), where)
				require.True(t, result.Torn, where)
			default:
				require.NoError(t, err, where)
				require.Less(t, len(got), 6, where)
				require.GreaterOrEqual(t, len(got), 3, where)
				require.True(t, result.Torn, where)
			}
		}
	}
}

// TestEveryTruncation requires the complete records after every truncation, and after
// zeroing the file from every offset.
func TestEveryTruncation(t *testing.T) {
	f := newFixture(t, 6, 10, 3)
	for n := range f.bytes {
		whole := 0
		for i, start := range f.starts {
			if start+recordHeaderBytes+len(f.records[i].payload) <= n {
				whole++
			}
		}
		got, _, err := replayBytes(t, f.bytes[:n])
		require.NoError(t, err, "cut to %d bytes", n)
		require.Equal(t, whole, len(got), "cut to %d bytes", n)
		requirePrefix(t, f.records, got)

		if n > 0 && f.bytes[n-1] == 0 {
			continue // zeros may well be the bytes of the record
		}
		b := append(bytes.Clone(f.bytes[:n]), make([]byte, len(f.bytes)-n)...)
		got, _, err = replayBytes(t, b)
		require.NoError(t, err, "zeros from byte %d", n)
		requirePrefix(t, f.records, got)
	}
}

// TestMarkBeyondDamageIsFound places the mark at every position relative to the scan's
// windows.
func TestMarkBeyondDamageIsFound(t *testing.T) {
	for _, distance := range []int{
		0, 1, windowBytes - 2*markBytes, windowBytes - markBytes - 1, windowBytes - markBytes, windowBytes - markBytes + 1,
		windowBytes - 16, windowBytes - 1, windowBytes, windowBytes + 1, 3 * windowBytes,
	} {
		t.Run(fmt.Sprint("distance=", distance), func(t *testing.T) {
			fs := vfs.NewMem()
			w, err := Create("1.wal", 1, &Options{FS: fs, Capacity: 4 * windowBytes})
			require.NoError(t, err)
			require.NoError(t, w.Append(1, makeRecord(1, distance).payload))
			through := w.Size()
			require.NoError(t, w.Sync())
			require.NoError(t, w.Close())
			b, err := vfs.ReadFile(fs, "1.wal")
			require.NoError(t, err)
			b[headerBytes] ^= 1
			_, result, err := replayBytes(t, b)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Equal(t, through, result.Synced)
		})
	}
}

// TestSyncMarkInPayloadIsIgnored: when the header of a log is lost, a sync mark inside
// a payload must not count as one of the log. A client could otherwise make a log that
// was never synced appear corrupt.
func TestSyncMarkInPayloadIsIgnored(t *testing.T) {
	theirs, ours := []byte("not the owner"), []byte("owner")
	for name, test := range map[string]struct {
		marked []byte // owner of the log that the payload holds
		synced bool
		err    error
	}{
		"never synced":           {marked: theirs},
		"never synced, no owner": {},
		"synced":                 {marked: theirs, synced: true, err: ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			other, err := Create("other.wal", 1, &Options{FS: mem, Owner: test.marked})
			require.NoError(t, err)
			require.NoError(t, other.Append(1, []byte("x")))
			require.NoError(t, other.Sync())
			require.NoError(t, other.Close())
			payload, err := vfs.ReadFile(mem, "other.wal")
			require.NoError(t, err)

			o := &Options{FS: mem, Number: 2, Owner: ours}
			w, err := Create("1.wal", 2, o)
			require.NoError(t, err)
			require.NoError(t, w.Append(1, make([]byte, 5000)))
			require.NoError(t, w.Append(2, payload))
			if test.synced {
				require.NoError(t, w.Sync())
			}
			require.NoError(t, w.Close())

			log, err := vfs.ReadFile(mem, "1.wal")
			require.NoError(t, err)
			clear(log[:4096]) // the header page was never written, or is damaged
			writeFile(t, mem, "damaged.wal", log)
			result, err := Replay("damaged.wal", o, func(uint64, []byte) error { return nil })
			require.ErrorIs(t, err, test.err)
			require.Zero(t, result.Records)
		})
	}
}

// TestLogOfAnotherOwner: Replay reports corruption, not an empty log.
func TestLogOfAnotherOwner(t *testing.T) {
	mem := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: mem, Owner: []byte("a")})
	require.NoError(t, err)
	require.NoError(t, w.Append(1, []byte("x")))
	require.NoError(t, w.Close())
	for _, owner := range []string{"", "b"} {
		_, err = Replay("1.wal", &Options{FS: mem, Owner: []byte(owner)}, nil)
		require.ErrorContains(t, err, "the log of another store")
		require.ErrorIs(t, err, ErrCorrupt)
	}
}
