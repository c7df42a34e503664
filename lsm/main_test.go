package lsm

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// open opens a store that is closed at the end of the test.
func open(t testing.TB, dir string, o *Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func memOptions() *Options {
	return &Options{FS: vfs.NewMem(), MemtableBytes: 64 << 10}
}

func set(t testing.TB, db *DB, key, value string) {
	t.Helper()
	require.NoError(t, db.Set([]byte(key), []byte(value)))
}

func requireValue(t testing.TB, db interface {
	Get(dst, key []byte) ([]byte, error)
}, key, want string) {
	t.Helper()
	got, err := db.Get(nil, []byte(key))
	require.NoError(t, err, "key %q", key)
	require.Equal(t, want, string(got), "key %q", key)
}

func requireMissing(t testing.TB, db interface {
	Get(dst, key []byte) ([]byte, error)
}, key string) {
	t.Helper()
	got, err := db.Get([]byte("dst"), []byte(key))
	require.ErrorIs(t, err, ErrNotFound, "key %q", key)
	require.Equal(t, "dst", string(got))
}

// loadFilters loads the filter pages, as the background does when no other call waits
// for the manager.
func loadFilters(t testing.TB, db *DB) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = db.filters.Tick(time.Now())
		require.NoError(t, err)
	}
}

// contents returns the entries of an iterator, forwards.
func contents(t testing.TB, it *Iterator) (all []string) {
	t.Helper()
	for ok := it.First(); ok; ok = it.Next() {
		all = append(all, fmt.Sprintf("%s=%s", it.Key(), it.Value()))
	}
	require.NoError(t, it.Err())
	return all
}
