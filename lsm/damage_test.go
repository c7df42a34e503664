package lsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/invariants"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// twoTables returns a store with an older and a newer table of several verified blocks
// each, and its contents. The newer table overwrites some keys of the older one and
// deletes others.
func twoTables(t *testing.T, key func(i int) []byte) (*DB, map[string]string) {
	t.Helper()
	db := open(t, "db", &Options{FS: vfs.NewMem(), MergeRule: MergeNever, FilterBytes: -1})
	state := map[string]string{}
	for i := range 600 {
		state[string(key(i))] = fmt.Sprintf("old%04d", i)
		set(t, db, string(key(i)), state[string(key(i))])
	}
	require.NoError(t, db.Flush())
	for i := 0; i < 600; i += 2 {
		if i%3 == 0 {
			delete(state, string(key(i)))
			require.NoError(t, db.Delete(key(i)))
			continue
		}
		state[string(key(i))] = fmt.Sprintf("new%04d", i)
		set(t, db, string(key(i)), state[string(key(i))])
	}
	require.NoError(t, db.Flush())
	tables := db.schedule.current.Load().tables
	require.Len(t, tables, 2)
	for _, table := range tables {
		require.Greater(t, len(partsOf(table.Mapped()).blocks), 1)
	}
	it := db.NewIter(nil)
	defer it.Close()
	contents(t, it) // verifies the blocks
	return db, state
}

var keyShapes = map[string]func(i int) []byte{
	"words": func(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i+1)*0x9e3779b97f4a7c15) },
	"even":  func(i int) []byte { return fmt.Appendf(nil, "document%06d", i) },
	"mixed": func(i int) []byte { return fmt.Appendf(nil, "document%d", i*i) },
}

// reader looks up keys in a store. One of its tables may be damaged.
type reader struct {
	t      *testing.T
	db     *DB
	state  map[string]string
	sorted []string // its keys
	path   string   // of the damaged table
}

func newReader(t *testing.T, db *DB, state map[string]string, path string) *reader {
	r := &reader{t: t, db: db, state: state, path: path}
	for key := range state {
		r.sorted = append(r.sorted, key)
	}
	slices.Sort(r.sorted)
	return r
}

// honest requires that an error names the damaged table.
func (r *reader) honest(err error) {
	var damage *CorruptionError
	var unreadable *ReadError
	switch {
	case errors.As(err, &damage):
		require.Equal(r.t, r.path, damage.Path)
	case errors.As(err, &unreadable):
		require.Equal(r.t, r.path, unreadable.Path)
	default:
		require.NoError(r.t, err)
	}
}

// answer requires that a result is correct or an error that names the damaged table. A
// value of Get may be damaged but not outdated, which is checked with GetVerified.
func (r *reader) answer(key, value []byte, err error) {
	want, there := r.state[string(key)]
	switch {
	case errors.Is(err, ErrNotFound):
		require.False(r.t, there, "%q exists and was not found", key)
	case err != nil:
		r.honest(err)
	case !there || want != string(value):
		verified, err := r.db.GetVerified(nil, key)
		if there && err == nil { // a merge that read the table before the damage has replaced it since
			require.Equal(r.t, want, string(verified), "verified value of %q", key)
			again, err := r.db.Get(nil, key)
			require.NoError(r.t, err)
			require.Equal(r.t, want, string(again), "%q had the value %q", key, value)
			return
		}
		require.Error(r.t, err, "%q has the value %q, verified %q, want %q", key, value, verified, want)
		require.False(r.t, there && errors.Is(err, ErrNotFound))
		if !errors.Is(err, ErrNotFound) {
			r.honest(err)
		}
	}
}

func (r *reader) get(key []byte) {
	value, err := r.db.Get(nil, key)
	r.answer(key, value, err)
	value, err = r.db.GetVerified(nil, key)
	want, there := r.state[string(key)]
	switch {
	case errors.Is(err, ErrNotFound):
		require.False(r.t, there, "%q exists and was not found", key)
	case err != nil:
		r.honest(err)
	default:
		require.Equal(r.t, want, string(value), "verified value of %q", key)
	}
}

func (r *reader) multiGet(keys [][]byte) {
	require.NoError(r.t, r.db.MultiGet(keys, func(i int, value []byte, err error) error {
		r.answer(keys[i], value, err)
		return nil
	}))
}

// seek positions an iterator and moves it some steps.
func (r *reader) seek(key []byte, backward bool, steps int) {
	it := r.db.NewIter(nil)
	defer it.Close()
	at, _ := slices.BinarySearch(r.sorted, string(key))
	if backward {
		at--
		r.walk(it, it.SeekLT(key), at, backward, steps)
	} else {
		r.walk(it, it.SeekGE(key), at, backward, steps)
	}
}

// walk requires that an iterator returns the key at an index and those after it.
func (r *reader) walk(it *Iterator, ok bool, at int, backward bool, steps int) {
	step, next := it.Next, 1
	if backward {
		step, next = it.Prev, -1
	}
	for ; ok && steps > 0; ok, at, steps = step(), at+next, steps-1 {
		require.True(r.t, at >= 0 && at < len(r.sorted), "the iterator returns %q", it.Key())
		require.Equal(r.t, r.sorted[at], string(it.Key()))
		require.Equal(r.t, r.state[r.sorted[at]], string(it.Value()), "value of %q", it.Key())
	}
	if !ok && it.Err() != nil {
		r.honest(it.Err())
	} else if !ok {
		require.True(r.t, at < 0 || at >= len(r.sorted), "the iterator ends before entry %d", at)
	}
}

// TestNotFoundNeverRestsOnDamagedBytes flips bits in tables with verified blocks. Every
// result is correct or an error that names the table.
func TestNotFoundNeverRestsOnDamagedBytes(t *testing.T) {
	for name, key := range keyShapes {
		t.Run(name, func(t *testing.T) {
			random := testseed.Rand(t)
			db, state := twoTables(t, key)
			for _, table := range db.schedule.current.Load().tables {
				r := newReader(t, db, state, table.Path)
				for at := 0; at < len(table.Mapped()); at += crashtest.Share(3, 1) {
					was := table.Mapped()[at]
					table.Mapped()[at] ^= 1 << (random.IntN(2) * random.IntN(8)) // the first bit may be that of a tombstone
					// Keys near the damaged byte, if it is in a block.
					near := int(float64(at) / float64(len(table.Mapped())) * 600)
					keys := make([][]byte, 8)
					for i := range keys {
						keys[i] = key(min(599, max(0, near+random.IntN(100)-50)))
						r.get(keys[i])
					}
					r.get(key(random.IntN(2000)))
					r.multiGet(keys)
					r.seek(keys[0], at%2 == 0, 5)
					table.Mapped()[at] = was
				}
				r.multiGet([][]byte{key(1)})
			}
		})
	}
}

// TestLookupDetectsDamagedKey clears a key of a verified block: Get and MultiGet return
// an error and not "not found".
func TestLookupDetectsDamagedKey(t *testing.T) {
	db, _ := twoTables(t, keyShapes["even"])
	table := db.schedule.current.Load().tables[1]
	key := keyShapes["even"](301)
	at := bytes.Index(table.Mapped(), key)
	copy(table.Mapped()[at:], "damaged")

	_, err := db.Get(nil, key)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = db.GetVerified(nil, key)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, db.MultiGet([][]byte{key}, func(_ int, _ []byte, err error) error {
		require.ErrorIs(t, err, ErrCorrupt)
		return nil
	}))
	it := db.NewIter(nil)
	defer it.Close()
	require.False(t, it.SeekGE(key))
	require.ErrorIs(t, it.Err(), ErrCorrupt)
}

// TestGetVerifiedDetectsDamagedValue damages a value of a verified block: Get returns
// the damaged bytes, GetVerified an error.
func TestGetVerifiedDetectsDamagedValue(t *testing.T) {
	db, _ := twoTables(t, keyShapes["even"])
	table := db.schedule.current.Load().tables[1]
	at := bytes.Index(table.Mapped(), []byte("old0301"))
	table.Mapped()[at] ^= 1
	requireValue(t, db, "document000301", "nld0301")
	_, err := db.GetVerified(nil, []byte("document000301"))
	require.ErrorIs(t, err, ErrCorrupt)
	table.Mapped()[at] ^= 1
	value, err := db.GetVerified([]byte("is "), []byte("document000301"))
	require.NoError(t, err)
	require.Equal(t, "is old0301", string(value))
	_, err = db.GetVerified(nil, []byte("document000000"))
	require.ErrorIs(t, err, ErrNotFound, "deleted")
}

// TestInsertedBytesDoNotPanic inserts a few bytes into tables with verified blocks, so
// that the rest of the table is shifted.
func TestInsertedBytesDoNotPanic(t *testing.T) {
	for name, key := range keyShapes {
		t.Run(name, func(t *testing.T) {
			random := testseed.Rand(t)
			db, state := twoTables(t, key)
			for _, table := range db.schedule.current.Load().tables {
				r := newReader(t, db, state, table.Path)
				whole := bytes.Clone(table.Mapped())
				p := partsOf(whole)
				for range crashtest.Share(100, 5000) {
					at, n := random.IntN(len(whole)), 1+random.IntN(4)
					if random.IntN(2) == 0 { // the index follows the blocks
						at = p.index + random.IntN(p.filter-p.index)
					}
					n = copy(table.Mapped()[at:], randomBytes(random, n))
					copy(table.Mapped()[at+n:], whole[at:])
					var keys [][]byte
					for range 2 * groupKeys {
						keys = append(keys, key(random.IntN(700)))
					}
					r.multiGet(keys)
					for _, key := range keys[:10] {
						r.get(key)
						r.seek(key, random.IntN(2) == 0, 100)
					}
					copy(table.Mapped(), whole)
				}
			}
		})
	}
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// TestBlockOverwrittenByAnotherBlock copies a valid block over another one of the same
// length, in the same table and from the older to the newer table.
func TestBlockOverwrittenByAnotherBlock(t *testing.T) {
	db := open(t, "db", &Options{FS: vfs.NewMem(), MergeRule: MergeNever, FilterBytes: -1})
	key := keyShapes["even"]
	state := map[string]string{}
	for _, version := range []string{"old", "new"} {
		for i := range 600 {
			state[string(key(i))] = fmt.Sprintf("%s%04d", version, i)
			set(t, db, string(key(i)), state[string(key(i))])
		}
		require.NoError(t, db.Flush())
	}
	newer, older := db.schedule.current.Load().tables[0], db.schedule.current.Load().tables[1]
	r := newReader(t, db, state, newer.Path)
	p := partsOf(newer.Mapped())
	require.Equal(t, p.index, partsOf(older.Mapped()).index)

	whole := bytes.Clone(newer.Mapped())
	copy(newer.Mapped()[tableHeaderSize:p.index], older.Mapped()[tableHeaderSize:])
	_, err := db.Get(nil, key(1))
	require.ErrorIs(t, err, ErrCorrupt, "old value instead of the new one")
	r.seek(nil, false, 600)
	copy(newer.Mapped(), whole)

	first, second := whole[p.blocks[0]:p.blocks[1]], newer.Mapped()[p.blocks[1]:p.blocks[2]]
	copy(second, first)
	for i := range 600 {
		r.get(key(i))
		r.seek(key(i), i%2 == 0, 3)
	}
}

// TestAccessOutOfBoundsIsCorruption: if a bounds check is missing, the error names the
// table and the process survives.
func TestAccessOutOfBoundsIsCorruption(t *testing.T) {
	db, _ := twoTables(t, keyShapes["words"])
	table := db.schedule.current.Load().tables[0]
	beyond := len(table.Mapped()) + 1
	fn := func() error { return fmt.Errorf("%x", table.Mapped()[:beyond]) }
	if invariants.Enabled {
		require.Panics(t, func() { _ = table.Guard(fn) })
		return
	}
	err := table.Guard(fn)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, tableName(table.Facts.Number))
}

// flippingFS flips a bit in the middle of the next table that is written, while armed.
type flippingFS struct {
	vfs.FS
	armed atomic.Bool
}

type flippingFile struct {
	vfs.File
	fs *flippingFS
}

func (f *flippingFS) Create(path string) (vfs.File, error) {
	file, err := f.FS.Create(path)
	if err == nil && strings.HasSuffix(path, tableSuffix) {
		file = &flippingFile{file, f}
	}
	return file, err
}

func (f *flippingFile) Write(p []byte) (int, error) {
	if f.fs.armed.Swap(false) {
		p = bytes.Clone(p)
		p[len(p)/2] ^= 1
	}
	return f.File.Write(p)
}

// TestDamagedOutputIsNotInstalled: a table of which a bit changes while it is written is written
// again, before its inputs are removed.
func TestDamagedOutputIsNotInstalled(t *testing.T) {
	for name, tables := range map[string]int{"flush": 0, "flush with merge": 1} {
		t.Run(name, func(t *testing.T) {
			fs := &flippingFS{FS: vfs.NewMem()}
			db := open(t, "db", &Options{FS: fs, MergeRule: MergeAlways, Logger: slog.New(slog.DiscardHandler)})
			var want []string
			for i := range 3000 {
				if i == 1500*tables {
					require.NoError(t, db.Flush())
				}
				set(t, db, fmt.Sprintf("key%06d", i), "value")
				want = append(want, fmt.Sprintf("key%06d=value", i))
			}
			fs.armed.Store(true)
			require.ErrorIs(t, db.Flush(), ErrCorrupt)
			require.False(t, fs.armed.Load())
			require.Len(t, db.schedule.current.Load().tables, tables)
			require.Eventually(t, func() bool { return db.Flush() == nil }, 10*time.Second, 10*time.Millisecond)
			require.Len(t, db.schedule.current.Load().tables, 1)
			it := db.NewIter(nil)
			defer it.Close()
			require.Equal(t, want, contents(t, it))
		})
	}
}
