package postgres

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/postgres/pgoutput"
	"docstore/internal/testseed"
	"docstore/queue"
)

var testOrigin = origin{system: 7, timeline: 1, table: 16385, publication: 16390, keys: 3, slot: "docstore_jobs", partitions: 1 << 60, columns: 1 << 30}

func TestCursor(t *testing.T) {
	long := bytes.Repeat([]byte{'k'}, maxKeyBytes)
	for _, c := range []cursor{
		{phase: phaseRows, origin: testOrigin, lsn: 9, index: 12, attempt: 3, base: []byte("a"), key: []byte("b")},
		{phase: phaseChanges, origin: testOrigin, lsn: 0x16_B374D848, index: 1 << 40, anchor: anchor{lsn: 0x16_B374D840, time: 1 << 50, xid: 1 << 31}},
		{phase: phaseQuery, key: long, base: long, origin: origin{query: 9, slot: string(bytes.Repeat([]byte{'s'}, maxSlotName))}},
	} {
		data := c.append([]byte("x"))[1:]
		require.LessOrEqual(t, len(data), queue.MaxCursorBytes)
		got, err := parseCursor(data)
		require.NoError(t, err)
		require.Equal(t, c.append(nil), got.append(nil))
		require.Equal(t, c.String(), got.String())
		for end := range data {
			_, err := parseCursor(data[:end])
			require.Error(t, err)
		}
		_, err = parseCursor(append(data, 0))
		require.ErrorIs(t, err, errForeignCursor)
	}
	_, err := parseCursor([]byte("DSPG\x02"))
	require.ErrorContains(t, err, "version 2, newer")
	_, err = parseCursor([]byte("DSUC\x00"))
	require.ErrorIs(t, err, errForeignCursor)
}

// cursorOfVersion0 is behind the second change of a transaction.
const cursorOfVersion0 = "DSPG\x00\x01\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01@\x00\x00\x06@\x00\x00\x03\x00\x00\x00" +
	"H\xd8t\xb3\x16\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0ddocstore_jobs\x00\x00\x00\x00"

func TestCursorOfVersion0(t *testing.T) {
	c, err := parseCursor([]byte(cursorOfVersion0))
	require.NoError(t, err)
	known := testOrigin
	known.partitions, known.columns = 0, 0
	require.Equal(t, known, c.origin)
	require.Equal(t, "change 2 of the transaction committed at 16/B374D848", c.String())
	require.Equal(t, anchor{lsn: c.lsn}, c.anchor, "it says nothing about the log before it")
	for end := range cursorOfVersion0 {
		_, err := parseCursor([]byte(cursorOfVersion0[:end]))
		require.Error(t, err)
	}
}

func TestKey(t *testing.T) {
	values := [][]byte{[]byte("a"), {}, bytes.Repeat([]byte{'x'}, 300)}
	got, err := parseKey(appendKey(nil, values))
	require.NoError(t, err)
	require.Equal(t, values, got)
	for _, bad := range []string{"\x05abc", "\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		_, err := parseKey([]byte(bad))
		require.Error(t, err)
	}
}

// TestEarliest: a model of shards that receive rows and changes, and of crashes that each shard
// survives up to some record. Each row and each change must reach its shard, or have been
// included, when reading continues at the earliest cursor.
func TestEarliest(t *testing.T) {
	random := testseed.Rand(t)
	for range 2000 {
		runEarliest(t, random)
	}
}

func runEarliest(t *testing.T, random *rand.Rand) {
	const shards = 3
	rows, total := 1+random.IntN(12), 20
	// Record r is row r, or a change behind the rows. It belongs to shard r % shards.
	var durable [shards]struct {
		data []byte
		has  map[int]bool
	}
	for i := range durable {
		durable[i].has = map[int]bool{}
	}
	o := &Opener{}
	finished := false
	for !finished {
		data := make([][]byte, shards)
		positions := make([]*cursor, shards)
		for i, d := range durable {
			data[i] = d.data
			if len(d.data) > 0 {
				p, err := o.Position(d.data)
				require.NoError(t, err)
				positions[i] = p.(*cursor)
			}
		}
		start, err := o.Earliest(data)
		require.NoError(t, err)
		at, next := cursor{phase: phaseRows, origin: testOrigin, lsn: 100}, 0
		if len(start) > 0 {
			at, err = parseCursor(start)
			require.NoError(t, err)
			if at.phase == phaseChanges {
				next = rows + int(at.lsn-100)*2 + int(at.index)/2
			} else {
				at.attempt, at.base = at.attempt+1, at.key
				if len(at.key) > 0 {
					next = int(at.key[0]) + 1
				}
			}
		}
		crash := total
		if random.IntN(4) > 0 {
			crash = next + random.IntN(total-next+1)
		}
		finished = crash == total
		var pending [shards][]cursor
		var ids [shards][]int
		for r := next; r < crash; r++ {
			if r < rows {
				at.key, at.index = []byte{byte(r)}, at.index+1
			} else {
				change := r - rows
				at = cursor{phase: phaseChanges, origin: testOrigin, lsn: pgoutput.LSN(100 + change/2), index: uint64(change%2)*2 + 2}
			}
			shard := r % shards
			if p := positions[shard]; p != nil && p.includes(&at) {
				require.True(t, durable[shard].has[r], "record %d is skipped, but its shard lacks it", r)
				continue
			}
			pending[shard], ids[shard] = append(pending[shard], at), append(ids[shard], r)
		}
		for i := range durable {
			n := len(ids[i])
			if !finished {
				n = random.IntN(n + 1)
			}
			for j := range n {
				durable[i].has[ids[i][j]] = true
				durable[i].data = pending[i][j].append(nil)
			}
		}
	}
	for r := range total {
		require.True(t, durable[r%shards].has[r], "record %d is missing", r)
	}
}

func TestEarliestRefuses(t *testing.T) {
	o := &Opener{}
	first, err := o.Earliest([][]byte{{}, []byte(cursorOfVersion0)})
	require.NoError(t, err)
	require.Empty(t, first)
	_, err = o.Earliest([][]byte{[]byte("bad")})
	require.Error(t, err)
	a, b := cursor{origin: testOrigin}, cursor{origin: testOrigin}
	b.origin.system++
	_, err = o.Earliest([][]byte{a.append(nil), b.append(nil)})
	require.ErrorContains(t, err, "different sources")
	_, err = o.Position([]byte("bad"))
	require.ErrorIs(t, err, errForeignCursor)
}

// FuzzCursor: what parses is encoded to the same bytes, unless it is of an earlier version.
func FuzzCursor(f *testing.F) {
	c := cursor{phase: phaseRows, origin: testOrigin, lsn: 9, index: 12, attempt: 3, base: []byte("a"), key: []byte("b")}
	f.Add(c.append(nil))
	f.Add([]byte(cursorOfVersion0))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCursor(data)
		if err != nil {
			return
		}
		if data[4] == cursorKind.Version {
			require.Equal(t, data, c.append(nil))
		}
		if values, err := parseKey(c.key); err == nil {
			again, err := parseKey(appendKey(nil, values))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(values), fmt.Sprint(again))
		}
	})
}

// TestIDs: the ids of different keys differ.
func TestIDs(t *testing.T) {
	f, err := newFormat([]string{"a", "b", "c"}, []*pgjsonType{text, text, text}, []string{"b", "a"})
	require.NoError(t, err)
	parts := []string{"", "a", ",", `\`, `\,`, `,\`, "a,b", `a\`, `\\`, "ab"}
	seen := map[string]string{}
	for _, a := range parts {
		for _, b := range parts {
			id, err := f.appendID(nil, [][]byte{[]byte(a), []byte(b), nil})
			require.NoError(t, err)
			require.Empty(t, seen[string(id)], "%q and %q", a, b)
			seen[string(id)] = fmt.Sprintf("%q %q", a, b)
		}
	}
	id, err := f.appendID(nil, [][]byte{[]byte("17"), []byte(`a,b\c`), nil})
	require.NoError(t, err)
	require.Equal(t, `a\,b\\c,17`, string(id))
	_, err = f.appendID(nil, [][]byte{nil, []byte("b"), nil})
	require.ErrorIs(t, err, errNullKey)
	_, err = newFormat([]string{"a"}, []*pgjsonType{text}, []string{"b"})
	require.ErrorContains(t, err, `no column "b"`)
}
