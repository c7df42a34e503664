package lsm

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
	"docstore/wal"
)

// TestLargeWrites writes values around the size of a memtable and of a log, between
// small ones: all are readable at once, after a crash, and from tables.
func TestLargeWrites(t *testing.T) {
	const full = 64 << 10
	// Overhead of a batch of one write in the log and in the memtable.
	inLog := int(wal.CapacityFor(batchHeaderBytes + 1 + 1 + 3 + len("large")))
	inMemory := int(memtable.Cost(1, batchHeaderBytes+1+1+3+uint64(len("large"))))
	for name, size := range map[string]int{
		"an eighth of a memtable": full/8 - inMemory, "more": full/8 - inMemory + 1,
		"a memtable": full - inMemory, "more than a memtable": full - inMemory + 1,
		"a log": full - inLog, "more than a log": full - inLog + 1,
		"many": 40 * full,
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			o := &Options{FS: mem, MemtableBytes: full}
			db := open(t, "db", o)
			value := bytes.Repeat([]byte("v"), size)
			for i := range 50 {
				set(t, db, strconv.Itoa(i), "small")
			}
			require.NoError(t, db.Set([]byte("large"), value))
			for i := range 50 {
				set(t, db, strconv.Itoa(50+i), "small")
			}
			verify := func(db *DB) {
				got, err := db.Get(nil, []byte("large"))
				require.NoError(t, err)
				require.True(t, bytes.Equal(value, got))
				for i := range 100 {
					requireValue(t, db, strconv.Itoa(i), "small")
				}
				require.NoError(t, db.Check())
			}
			verify(db)
			verify(open(t, "db", &Options{FS: mem.CrashClone(vfs.KeepAll), MemtableBytes: full}))
			require.NoError(t, db.Flush())
			require.NoError(t, db.WaitIdle(t.Context()))
			verify(db)
		})
	}
}

// TestReadOnlyMount opens an unclosed store on a read-only file system.
func TestReadOnlyMount(t *testing.T) {
	dir := t.TempDir()
	if err := mountSmall(dir, 8<<20); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unmount(dir)) })
	crashed := vfs.NewMem()
	db := open(t, "db", &Options{FS: crashed, MemtableBytes: 64 << 10})
	for i := range 2000 {
		set(t, db, fmt.Sprint(i), "value")
	}
	require.NoError(t, vfs.OS.MkdirAll(dir+"/db"))
	clone := crashed.CrashClone(vfs.KeepAll)
	names, err := clone.List("db")
	require.NoError(t, err)
	for _, name := range names {
		b, err := vfs.ReadFile(clone, "db/"+name)
		require.NoError(t, err)
		writeFile(t, vfs.OS, dir+"/db/"+name, b)
	}
	require.NoError(t, remountReadOnly(dir))
	_, err = Open(dir+"/db", nil)
	require.Error(t, err, "for writing")
	reader := open(t, dir+"/db", &Options{ReadOnly: true})
	for i := range 2000 {
		requireValue(t, reader, fmt.Sprint(i), "value")
	}
	require.NoError(t, reader.Check())
}
