package vfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// Each case starts with a durable directory /d and the file "old" with the contents
// "old". want are the files of /d after a power cut that keeps only synced data.
func TestCrashKeepsWhatWasSynced(t *testing.T) {
	for name, test := range map[string]struct {
		history func(t *testing.T, r testFS)
		want    map[string]string
	}{
		"nothing happened": {
			history: func(*testing.T, testFS) {},
			want:    map[string]string{"old": "old"},
		},
		"new file, nothing synced": {
			history: func(t *testing.T, r testFS) { r.write(t, "new", "content") },
			want:    map[string]string{"old": "old"},
		},
		"new file synced, its directory not": {
			history: func(t *testing.T, r testFS) { r.writeSynced(t, "new", "content") },
			want:    map[string]string{"old": "old"},
		},
		"new file not synced, its directory is": {
			history: func(t *testing.T, r testFS) {
				r.write(t, "new", "content")
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"old": "old", "new": ""},
		},
		"new file and directory synced": {
			history: func(t *testing.T, r testFS) {
				r.writeSynced(t, "new", "content")
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"old": "old", "new": "content"},
		},
		"written after the sync": {
			history: func(t *testing.T, r testFS) {
				f := r.openAppend(t, "old")
				_, err := f.Write([]byte(" and synced"))
				require.NoError(t, err)
				require.NoError(t, f.SyncData())
				_, err = f.Write([]byte(" and not"))
				require.NoError(t, err)
			},
			want: map[string]string{"old": "old and synced"},
		},
		"cut, not synced": {
			history: func(t *testing.T, r testFS) { require.NoError(t, r.openAppend(t, "old").Truncate(1)) },
			want:    map[string]string{"old": "old"},
		},
		"cut and synced": {
			history: func(t *testing.T, r testFS) {
				f := r.openAppend(t, "old")
				require.NoError(t, f.Truncate(1))
				require.NoError(t, f.Sync())
			},
			want: map[string]string{"old": "o"},
		},
		"cut, written over and synced": {
			history: func(t *testing.T, r testFS) {
				f := r.openAppend(t, "old")
				require.NoError(t, f.Truncate(1))
				_, err := f.Write([]byte("ne"))
				require.NoError(t, err)
				require.NoError(t, f.Sync())
				require.NoError(t, f.Truncate(0))
			},
			want: map[string]string{"old": "one"},
		},
		"removed, directory not synced": {
			history: func(t *testing.T, r testFS) { require.NoError(t, r.Remove(r.path("old"))) },
			want:    map[string]string{"old": "old"},
		},
		"removed, directory synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.Remove(r.path("old")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{},
		},
		"renamed, directory not synced": {
			history: func(t *testing.T, r testFS) { require.NoError(t, r.Rename(r.path("old"), r.path("new"))) },
			want:    map[string]string{"old": "old"},
		},
		"renamed, directory synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.Rename(r.path("old"), r.path("new")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"new": "old"},
		},
		"unsynced file renamed over a synced one": {
			history: func(t *testing.T, r testFS) {
				r.write(t, "new", "new")
				require.NoError(t, r.Rename(r.path("new"), r.path("old")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"old": ""},
		},
		"moved between directories, the target synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.MkdirAll("/e"))
				require.NoError(t, r.SyncDir("/"))
				require.NoError(t, r.Rename("/e", r.path("e")))
				require.NoError(t, r.Rename(r.path("old"), r.path("e", "old")))
				require.NoError(t, r.SyncDir(r.path("e")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"e/old": "old"},
		},
		"linked, directory synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.Link(r.path("old"), r.path("new")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"old": "old", "new": "old"},
		},
		"new directory, its parent not synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.MkdirAll(r.path("e")))
				r.writeSynced(t, "e/new", "content")
				require.NoError(t, r.SyncDir(r.path("e")))
			},
			want: map[string]string{"old": "old"},
		},
		"new directory and its parent synced": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.MkdirAll(r.path("e")))
				r.writeSynced(t, "e/new", "content")
				require.NoError(t, r.SyncDir(r.path("e")))
				require.NoError(t, r.SyncDir(r.dir))
			},
			want: map[string]string{"old": "old", "e/new": "content"},
		},
		"tree removed": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, r.RemoveAll(r.dir))
				require.NoError(t, r.SyncDir("/"))
				require.NoError(t, r.MkdirAll(r.dir))
				require.NoError(t, r.SyncDir("/"))
			},
			want: map[string]string{},
		},
		"append map synced in part": {
			history: func(t *testing.T, r testFS) {
				m := appended(t, r)
				require.NoError(t, m.Sync(4))
			},
			want: map[string]string{"old": "old", "log": "abcd\x00\x00\x00\x00"},
		},
		"append map synced and closed": {
			history: func(t *testing.T, r testFS) {
				m := appended(t, r)
				require.NoError(t, m.Sync(6))
				require.NoError(t, m.Close())
			},
			want: map[string]string{"old": "old", "log": "abcdef\x00\x00"}, // Close does not sync
		},
		"append map never synced": {
			history: func(t *testing.T, r testFS) {
				appended(t, r)
			},
			want: map[string]string{"old": "old", "log": ""},
		},
		"atomic file": {
			history: func(t *testing.T, r testFS) {
				require.NoError(t, WriteFileAtomic(r, r.path("old"), []byte("new")))
			},
			want: map[string]string{"old": "new"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem, r := startedMem(t)
			test.history(t, r)
			before := tree(t, mem, "/d")
			clone := mem.CrashClone(KeepSynced)
			assert.Equal(t, test.want, tree(t, clone, "/d"))
			assert.Equal(t, before, tree(t, mem.CrashClone(KeepAll), "/d"))
			assert.Equal(t, before, tree(t, mem.ProcessCrashClone(), "/d"))
			assert.Equal(t, before, tree(t, mem, "/d"), "CrashClone changed the original")
			assert.Equal(t, test.want, tree(t, clone.CrashClone(KeepSynced), "/d"), "a clone is durable")
		})
	}
}

// appended returns an append map with "abcdef", under a durable name.
func appended(t *testing.T, r testFS) AppendMap {
	t.Helper()
	m, err := r.CreateAppendMap(r.path("log"), 8)
	require.NoError(t, err)
	require.NoError(t, r.SyncDir(r.dir))
	_, err = m.Append([]byte("abcdef"))
	require.NoError(t, err)
	return m
}

// startedMem returns the file system at the start of each case.
func startedMem(t *testing.T) (*Mem, testFS) {
	t.Helper()
	mem := NewMem()
	r := testFS{FS: mem, dir: "/d"}
	require.NoError(t, mem.MkdirAll("/d"))
	require.NoError(t, mem.SyncDir("/"))
	r.writeSynced(t, "old", "old")
	require.NoError(t, mem.SyncDir("/d"))
	return mem, r
}

// writeSynced creates and syncs a file, but not its name.
func (r testFS) writeSynced(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, writeNewFile(r, r.path(name), []byte(content)))
}

func (r testFS) openAppend(t *testing.T, name string) File {
	t.Helper()
	f, err := r.OpenAppend(r.path(name))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// tree returns the contents of all files below dir.
func tree(t *testing.T, fsys FS, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	var walk func(below string)
	walk = func(below string) {
		names, err := fsys.List(filepath.Join(dir, below))
		require.NoError(t, err)
		for _, name := range names {
			name = filepath.Join(below, name)
			info, err := fsys.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			if info.Dir {
				walk(name)
				continue
			}
			data, err := ReadFile(fsys, filepath.Join(dir, name))
			require.NoError(t, err)
			files[filepath.ToSlash(name)] = string(data)
		}
	}
	walk(".")
	return files
}

func TestCrashCloneHasNoLocksAndKeepsIdentities(t *testing.T) {
	mem, r := startedMem(t)
	_, err := r.Lock(r.path("LOCK"), "me")
	require.NoError(t, err)
	before, err := r.Stat(r.path("old"))
	require.NoError(t, err)
	clone := mem.ProcessCrashClone()
	lock, err := clone.Lock(r.path("LOCK"), "the next")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	after, err := clone.Stat(r.path("old"))
	require.NoError(t, err)
	assert.Equal(t, before.ID, after.ID)
	_, err = r.Lock(r.path("LOCK"), "me again")
	assert.ErrorIs(t, err, ErrLocked, "the original is still locked")
}

func TestCrashCloneIsRepeatable(t *testing.T) {
	mem, r := startedMem(t)
	for i := range 20 {
		r.write(t, fmt.Sprint(i), string(bytes.Repeat([]byte{1}, 20_000)))
	}
	for seed := range uint64(20) {
		for _, keep := range []Keep{KeepRandom(seed), KeepTorn(seed), KeepReordered(seed)} {
			assert.Equal(t, tree(t, mem.CrashClone(keep), "/d"), tree(t, mem.CrashClone(keep), "/d"))
		}
	}
}

// TestCrashTearsTheLastWrite: every part of the last write can survive; earlier writes
// always survive.
func TestCrashTearsTheLastWrite(t *testing.T) {
	mem, r := startedMem(t)
	f := r.openAppend(t, "old")
	for _, text := range []string{"-one", "-two"} {
		_, err := f.Write([]byte(text))
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		files := tree(t, mem.CrashClone(KeepTorn(seed)), "/d")
		seen[files["old"]] = true
	}
	assert.Equal(t, map[string]bool{
		"old-one\x00\x00\x00\x00": true, "old-one-\x00\x00\x00": true, "old-one-t\x00\x00": true, "old-one-tw\x00": true,
	}, seen)
	require.NoError(t, f.SyncData())
	assert.Equal(t, "old-one-two", tree(t, mem.CrashClone(KeepTorn(1)), "/d")["old"])
}

// TestCrashReordersNames: names become durable in any order, each with its bytes.
func TestCrashReordersNames(t *testing.T) {
	mem, r := startedMem(t)
	r.write(t, "first", "1")
	r.write(t, "second", "2")
	require.NoError(t, r.Remove(r.path("old")))
	seen := map[string]bool{}
	for seed := range uint64(200) {
		seen[fmt.Sprint(tree(t, mem.CrashClone(KeepReordered(seed)), "/d"))] = true
	}
	assert.Len(t, seen, 8, "each subset of three changes")
	assert.True(t, seen["map[old:old second:2]"])
}

// TestCrashKeepsAnySubsetOfPages: every combination of unsynced pages occurs: none,
// all, the last without the first, and a torn page.
func TestCrashKeepsAnySubsetOfPages(t *testing.T) {
	const pages = 3
	for name, write := range map[string]func(t *testing.T, r testFS, content []byte){
		"file": func(t *testing.T, r testFS, content []byte) {
			f, err := r.Create(r.path("new"))
			require.NoError(t, err)
			_, err = f.Write(content)
			require.NoError(t, err)
		},
		"append map": func(t *testing.T, r testFS, content []byte) {
			m, err := r.CreateAppendMap(r.path("new"), int64(len(content)))
			require.NoError(t, err)
			_, err = m.Append(content)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem, r := startedMem(t)
			write(t, r, bytes.Repeat([]byte{1}, pages*pageBytes))
			require.NoError(t, r.SyncDir(r.dir))
			subsets := map[string]bool{}
			sizes := map[string]bool{}
			for seed := range uint64(2000) {
				data, err := ReadFile(mem.CrashClone(KeepRandom(seed)), r.path("new"))
				require.NoError(t, err)
				switch len(data) {
				case 0:
					sizes["old"] = true
				case pages * pageBytes:
					sizes["new"] = true
					subsets[subsetOf(data)] = true
				default:
					sizes["between"] = true
				}
			}
			assert.Len(t, sizes, 3)
			for _, subset := range []string{"---", "K--", "-K-", "--K", "KK-", "K-K", "-KK", "KKK", "T--", "KKT"} {
				assert.Contains(t, subsets, subset)
			}
		})
	}
}

// subsetOf formats which pages were kept, lost or torn.
func subsetOf(data []byte) string {
	var shown []byte
	for ; len(data) > 0; data = data[pageBytes:] {
		switch bytes.Count(data[:pageBytes], []byte{1}) {
		case 0:
			shown = append(shown, '-')
		case pageBytes:
			shown = append(shown, 'K')
		default:
			shown = append(shown, 'T')
		}
	}
	return string(shown)
}

func TestCrashKeepsAnySubsetOfNames(t *testing.T) {
	mem, r := startedMem(t)
	r.writeSynced(t, "a", "a")
	require.NoError(t, r.Rename(r.path("a"), r.path("b")))
	require.NoError(t, r.Remove(r.path("old")))
	r.writeSynced(t, "c", "c")
	seen := map[string]bool{}
	for seed := range uint64(1000) {
		names, err := mem.CrashClone(KeepRandom(seed)).List("/d")
		require.NoError(t, err)
		seen[fmt.Sprint(names)] = true
	}
	for _, names := range []string{
		"[old]", "[a old]", "[b old]", "[b]", "[b c]", // in their order
		"[]", "[c old]", "[a c]", "[b c old]", "[c]", // and out of it
	} {
		assert.Contains(t, seen, names)
	}
	assert.NotContains(t, seen, "[a b]", "a rename is one step")
}

// TestCrashNeverTouchesWhatWasSynced: in random histories all synced bytes survive a
// crash, and no other bytes than written ones appear.
func TestCrashNeverTouchesWhatWasSynced(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 300 {
		mem, r := startedMem(t)
		f, err := r.Create(r.path("new"))
		require.NoError(t, err)
		require.NoError(t, r.SyncDir(r.dir))
		var written, synced []byte
		for range rnd.IntN(10) {
			p := bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, rnd.IntN(3*pageBytes))
			_, err := f.Write(p)
			require.NoError(t, err)
			written = append(written, p...)
			if rnd.IntN(3) == 0 {
				require.NoError(t, f.SyncData())
				synced = written
			}
		}
		data, err := ReadFile(mem.CrashClone(KeepRandom(rnd.Uint64())), r.path("new"))
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(data, synced))
		require.LessOrEqual(t, len(data), len(written))
		for i, b := range data {
			if b != written[i] && (b != 0 || i < len(synced)) {
				require.Failf(t, "a byte never written", "offset %d", i)
			}
		}
	}
}

func TestNoSpace(t *testing.T) {
	mem, r := startedMem(t)
	mem.SetCapacity(10) // "old" takes 3 of them
	f, err := r.Create(r.path("new"))
	require.NoError(t, err)
	n, err := f.Write([]byte("1234567890"))
	assert.ErrorIs(t, err, ErrNoSpace)
	assert.Equal(t, 7, n, "bytes that fit are written")
	free, err := r.Free("/d")
	require.NoError(t, err)
	assert.Zero(t, free.Bytes)
	_, err = r.CreateAppendMap(r.path("log"), 1)
	assert.ErrorIs(t, err, ErrNoSpace)
	_, err = r.Stat(r.path("log"))
	assert.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, r.Remove(r.path("old")))
	m, err := r.CreateAppendMap(r.path("log"), 3)
	require.NoError(t, err)
	require.NoError(t, m.Close()) // frees unused capacity
	require.NoError(t, r.Remove(r.path("new")))
	_, err = f.Write([]byte("1234"))
	assert.ErrorIs(t, err, ErrNoSpace, "an open file keeps its bytes")
	require.NoError(t, f.Close())
	free, err = r.Free("/d")
	require.NoError(t, err)
	assert.EqualValues(t, 10, free.Bytes)
	assert.ErrorIs(t, WriteFileAtomic(r, r.path("big"), make([]byte, 11)), ErrNoSpace)
	assert.Equal(t, []string{"log"}, r.list(t), "the temporary file is removed")
}

// TestFreeAfterRandomHistory: the count of free bytes is exact after any
// operations on names.
func TestFreeAfterRandomHistory(t *testing.T) {
	rnd := testseed.Rand(t)
	mem := NewMem()
	r := newModelRoom(mem, "/")
	for range 2000 {
		randomOp(rnd, r)
	}
	r.close()
	names, err := mem.List("/")
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, mem.RemoveAll("/"+name))
	}
	free, err := mem.Free("/")
	require.NoError(t, err)
	assert.EqualValues(t, defaultMemCapacity, free.Bytes)
}
