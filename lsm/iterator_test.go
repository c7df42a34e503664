package lsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestIteratorChangesDirection steps and seeks in both directions, over large values and
// tombstones.
func TestIteratorChangesDirection(t *testing.T) {
	r := testseed.Rand(t)
	db := open(t, "db", memOptions())
	state := map[string]string{}
	for i := range 1000 {
		key := fmt.Sprintf("key%04d", r.IntN(800))
		if i%10 == 9 {
			delete(state, key)
			require.NoError(t, db.Delete([]byte(key)))
			continue
		}
		size := r.IntN(100)
		if i%50 == 0 {
			size = r.IntN(48 << 10)
		}
		state[key] = string(make([]byte, size))
		set(t, db, key, state[key])
		if i%300 == 299 {
			require.NoError(t, db.Flush())
		}
	}
	var keys []string
	for key := range state {
		keys = append(keys, key)
	}
	slices.Sort(keys)

	it := db.NewIter(nil)
	defer it.Close()
	it.First()
	at := 0 // -1 is before the first, len(keys) after the last
	for range 2000 {
		steps := r.IntN(1 + r.IntN(200))
		switch r.IntN(6) {
		case 0:
			key := fmt.Sprintf("key%04d", r.IntN(900))
			it.SeekGE([]byte(key))
			at, _ = slices.BinarySearch(keys, key)
		case 1:
			key := fmt.Sprintf("key%04d", r.IntN(900))
			it.SeekLT([]byte(key))
			at, _ = slices.BinarySearch(keys, key)
			at--
		case 2, 3:
			for range steps {
				it.Next()
				at = min(at+1, len(keys))
			}
		default:
			for range steps {
				it.Prev()
				at = max(at-1, -1)
			}
		}
		require.NoError(t, it.Err())
		require.Equal(t, at >= 0 && at < len(keys), it.Valid())
		if it.Valid() {
			require.Equal(t, keys[at], string(it.Key()))
			require.Equal(t, state[keys[at]], string(it.Value()))
		}
	}
}

// TestIteratorReturnsEntriesBeforeDamage damages a block in the middle of a table. The
// entries before it are returned, then the error.
func TestIteratorReturnsEntriesBeforeDamage(t *testing.T) {
	fsys := vfs.NewMem()
	db := open(t, "db", &Options{FS: fsys})
	const n = 1000
	value := make([]byte, 100)
	for i := range n {
		set(t, db, fmt.Sprintf("key%04d", i), string(value))
	}
	require.NoError(t, db.Flush())
	table := db.schedule.current.Load().tables[0]
	p := partsOf(table.Mapped())
	damaged := testseed.Rand(t).IntN(len(p.blocks)-2) + 1
	start, end := p.block(damaged)
	table.Mapped()[start+(end-start)/2] ^= 1

	it := db.NewIter(nil)
	defer it.Close()
	for _, c := range []struct {
		move, step func() bool
		want       int // entries
	}{
		{it.First, it.Next, entriesOf(table.Mapped(), p.blocks[:damaged])},
		{it.Last, it.Prev, entriesOf(table.Mapped(), p.blocks[damaged+1:])},
	} {
		count := 0
		for ok := c.move(); ok; ok = c.step() {
			count++
		}
		require.ErrorIs(t, it.Err(), ErrCorrupt)
		require.False(t, it.Valid())
		require.Equal(t, c.want, count)
	}
	require.True(t, it.First(), "entries before the damage are readable")
	require.NoError(t, it.Err())
}

// entriesOf counts the entries of some blocks.
func entriesOf(table []byte, blocks []int) (n int) {
	for _, at := range blocks {
		n += int(binary.LittleEndian.Uint32(table[at+12:]))
	}
	return n
}
