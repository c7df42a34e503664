package lsm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
)

func TestMultiGetAllocatesForTheValueOnly(t *testing.T) {
	db := open(t, "db", memOptions())
	keys := make([][]byte, 3*groupKeys)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%d", i)
		set(t, db, string(keys[i]), "value")
		if i == groupKeys {
			require.NoError(t, db.Flush())
		}
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		require.NoError(t, db.MultiGet(keys, func(_ int, _ []byte, err error) error { return err }))
	}), 1.0)
}

func TestMultiGetFailsOnlyForAffectedKeys(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(file *os.File) error
		want   error
		spared int // keys that are found nevertheless
	}{
		// The index follows the blocks, so only keys in memory are found.
		{"table truncated while mapped", func(file *os.File) error { return file.Truncate(0) }, vfs.ErrFault, groupKeys},
		{"a block is damaged", func(file *os.File) error {
			_, err := file.WriteAt([]byte("damage"), tableHeaderSize+100)
			return err
		}, ErrCorrupt, 2*groupKeys - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			db := open(t, dir, nil)
			value := make([]byte, blockSize) // one value per block
			keys := make([][]byte, 2*groupKeys)
			for i := range keys {
				// Keys in the table alternate with keys in memory.
				keys[i] = fmt.Appendf(nil, "key%03d", i/2+i%2*groupKeys)
			}
			for i := 0; i < len(keys); i += 2 {
				require.NoError(t, db.Set(keys[i], value))
			}
			require.NoError(t, db.Flush())
			require.NoError(t, db.Close())
			db = open(t, dir, nil) // the flush has verified the blocks, the first reads verify them again
			for i := 1; i < len(keys); i += 2 {
				require.NoError(t, db.Set(keys[i], value))
			}
			tables, err := filepath.Glob(filepath.Join(dir, "*.table"))
			require.NoError(t, err)
			require.Len(t, tables, 1)
			file, err := os.OpenFile(tables[0], os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, c.damage(file))
			require.NoError(t, file.Close())

			found := 0
			require.NoError(t, db.MultiGet(keys, func(i int, got []byte, err error) error {
				_, alone := db.Get(nil, keys[i])
				if err != nil {
					require.ErrorIs(t, err, c.want)
					require.ErrorIs(t, alone, c.want)
					return nil
				}
				found++
				require.NoError(t, alone)
				require.Equal(t, value, got)
				return nil
			}))
			require.Equal(t, c.spared, found)
		})
	}
}

// TestKeysWithEqualHashesAreDistinguished writes two keys with the same memtable hash.
func TestKeysWithEqualHashesAreDistinguished(t *testing.T) {
	byHash := map[uint32]string{}
	var first, second string
	for i := 0; first == ""; i++ { // some 80,000 keys
		second = strconv.Itoa(i)
		first = byHash[memtable.Hash([]byte(second))]
		byHash[memtable.Hash([]byte(second))] = second
	}
	db := open(t, "db", memOptions())
	keys := [][]byte{[]byte(first), []byte(second)}
	verify := func(want ...string) {
		got := make([]string, len(keys))
		require.NoError(t, db.MultiGet(keys, func(i int, value []byte, err error) error {
			alone, aloneErr := db.Get(nil, keys[i])
			require.Equal(t, err, aloneErr)
			require.Equal(t, string(alone), string(value))
			got[i] = string(value)
			return nil
		}))
		require.Equal(t, want, got)
	}
	set(t, db, first, "first")
	verify("first", "")
	set(t, db, second, "second")
	verify("first", "second")
	set(t, db, second, "again")
	verify("first", "again")
}
