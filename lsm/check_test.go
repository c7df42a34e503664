package lsm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

const unlimited = 1 << 40 // bytes a second

// TestScrubFindsDamageBeneathAnOpenStore changes a byte of a table of an open store.
func TestScrubFindsDamageBeneathAnOpenStore(t *testing.T) {
	random := testseed.Rand(t)
	db := open(t, filepath.Join(t.TempDir(), "db"), &Options{})
	for i := range 3 {
		for j := range 1000 {
			set(t, db, fmt.Sprintf("key%d-%d", i, j), "value")
		}
		require.NoError(t, db.Flush())
	}
	require.NoError(t, db.WaitIdle(t.Context()))
	tables := db.Stats().Tables
	var all, told int64
	for _, table := range tables {
		all += int64(table.Bytes)
	}
	require.NoError(t, db.Scrub(t.Context(), unlimited, func(bytes int64) { told += bytes }))
	require.Equal(t, all, told)

	for range 300 {
		table := tables[random.IntN(len(tables))]
		file, err := os.OpenFile(filepath.Join(db.env.dir, tableName(table.Number)), os.O_RDWR, 0)
		require.NoError(t, err)
		at := random.Int64N(int64(table.Bytes))
		b := make([]byte, 1)
		_, err = file.ReadAt(b, at)
		require.NoError(t, err)
		flip := byte(1) << random.IntN(8)
		_, err = file.WriteAt([]byte{b[0] ^ flip}, at)
		require.NoError(t, err)
		err = db.Scrub(t.Context(), unlimited, nil)
		require.ErrorIs(t, err, ErrCorrupt, "byte %d of %d of table %d", at, table.Bytes, table.Number)
		require.ErrorContains(t, err, tableName(table.Number))
		require.ErrorIs(t, db.Check(), ErrCorrupt)
		_, err = file.WriteAt(b, at)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	require.NoError(t, db.Scrub(t.Context(), unlimited, nil))
}

// TestScrubReadsSlowly: Scrub keeps to its rate, and ends with its context or the
// store.
func TestScrubReadsSlowly(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		db, err := Open("db", memOptions())
		require.NoError(t, err)
		for i := range 20_000 {
			set(t, db, fmt.Sprintf("key%d", i), "value")
		}
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
		var all int64
		for _, table := range db.Stats().Tables {
			all += int64(table.Bytes)
		}
		const rate = 1000
		started := time.Now()
		require.NoError(t, db.Scrub(t.Context(), rate, nil))
		require.InDelta(t, float64(all)/rate, time.Since(started).Seconds(), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, db.Scrub(ctx, rate, nil), context.DeadlineExceeded)

		ended := make(chan error)
		go func() { ended <- db.Scrub(t.Context(), rate, nil) }()
		synctest.Wait()
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-ended, ErrClosed)
		require.ErrorIs(t, db.Scrub(t.Context(), rate, nil), ErrClosed)
	})
}

// TestScrubReferencesOneTable: Scrub references only the table that it is reading.
func TestScrubReferencesOneTable(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	flush := func(name string) { // a full memtable
		for i := range 60 {
			set(t, db, fmt.Sprint(name, i), strings.Repeat(name, 1000))
		}
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
	}
	for _, name := range []string{"a", "b", "c"} {
		flush(name)
	}
	require.Len(t, db.Stats().Tables, 2)
	merged := false
	require.NoError(t, db.Scrub(t.Context(), unlimited, func(int64) {
		if merged {
			t.Error("Scrub reads a table that was merged")
		}
		merged = true
		flush("d")
		require.Len(t, db.Stats().Tables, 1)
		require.Len(t, namesIn(t, o.FS, "db", tableSuffix), 1)
	}))
	require.True(t, merged)
}

// TestScrubFindsDamageInTheManifest damages a file that an open store does not read.
func TestScrubFindsDamageInTheManifest(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	content, err := vfs.ReadFile(o.FS, "db/"+manifestName)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, vfs.WriteFileAtomic(o.FS, "db/"+manifestName, content))
	require.ErrorIs(t, db.Scrub(t.Context(), unlimited, nil), ErrCorrupt)
}
