package wal

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite the golden files and the examples in docs")

// record is an appended or replayed record.
type record struct {
	sequence uint64
	payload  []byte
}

// makeRecord returns a record whose payload is determined by its sequence number and
// size.
func makeRecord(sequence uint64, payloadBytes int) record {
	payload := make([]byte, payloadBytes)
	random := rand.New(rand.NewPCG(sequence, uint64(payloadBytes)))
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	return record{sequence, payload}
}

// replayAll replays a log and returns copies of its records.
func replayAll(fs vfs.FS, name string) ([]record, Result, error) {
	var records []record
	result, err := Replay(name, &Options{FS: fs}, func(sequence uint64, payload []byte) error {
		records = append(records, record{sequence, bytes.Clone(payload)})
		return nil
	})
	return records, result, err
}

// requirePrefix fails unless got is the first len(got) of want.
func requirePrefix(t testing.TB, want, got []record) {
	t.Helper()
	require.LessOrEqual(t, len(got), len(want), "more records than were appended")
	for i := range got {
		require.Equal(t, want[i].sequence, got[i].sequence, "sequence of record %d", i)
		require.True(t, bytes.Equal(want[i].payload, got[i].payload), "payload of record %d", i)
	}
}

// writeFile creates a file with the given contents.
func writeFile(t testing.TB, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name)
	require.NoError(t, err)
	_, err = f.Write(data)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// replayBytes replays a log of the given bytes.
func replayBytes(t testing.TB, data []byte) ([]record, Result, error) {
	t.Helper()
	fs := vfs.NewMem()
	writeFile(t, fs, "1.wal", data)
	return replayAll(fs, "1.wal")
}

// fixture is a log of equally large records with a fixed header.
type fixture struct {
	header  header
	records []record
	starts  []int // the offset of each record
	marks   []int // the offset of each mark
	bytes   []byte
}

var fixtureHeader = header{
	number:  7,
	created: 1767225600123,
	id:      logID{0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0},
}

// newFixture writes a log of n records, synced after each of the given record counts,
// and closes it.
func newFixture(t testing.TB, n, payloadBytes int, syncAfter ...int) *fixture {
	t.Helper()
	fs := vfs.NewMem()
	w, err := create("1.wal", fixtureHeader, Options{FS: fs, Capacity: 1 << 20})
	require.NoError(t, err)
	f := &fixture{header: fixtureHeader}
	for i := range n {
		r := makeRecord(uint64(101+i), payloadBytes)
		f.starts = append(f.starts, int(w.Size()))
		f.records = append(f.records, r)
		require.NoError(t, w.Append(r.sequence, r.payload))
		for _, after := range syncAfter {
			if after == i+1 {
				f.marks = append(f.marks, int(w.Size()))
				require.NoError(t, w.Sync())
			}
		}
	}
	require.NoError(t, w.Close())
	f.bytes, err = vfs.ReadFile(fs, "1.wal")
	require.NoError(t, err)
	return f
}

// seal recomputes the CRC of a modified record.
func (f *fixture) seal(b []byte, start int) {
	total := recordHeaderBytes + int(binary.LittleEndian.Uint32(b[start+recordLengthAt:]))
	crc := crc32c(f.header.id[:], b[start+recordLengthAt:start+total])
	binary.LittleEndian.PutUint32(b[start+recordCRCAt:], crc)
}

// crc32c computes the checksum of the specification with the standard library only.
func crc32c(parts ...[]byte) uint32 {
	return crc32.Checksum(bytes.Join(parts, nil), crc32.MakeTable(crc32.Castagnoli))
}
