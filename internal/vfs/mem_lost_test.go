package vfs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/race"
	"docstore/internal/testseed"
)

// losing returns a file system on which the next sync fails and loses pages.
func losing(mem *Mem, evicted bool) *Fault {
	failed := false
	return NewFault(mem, func(op Op) error {
		if failed || op.Kind != OpSync && op.Kind != OpSyncData && op.Kind != OpAppendSync {
			return nil
		}
		failed = true
		return &LostPagesError{Evicted: evicted, Err: errInjected}
	})
}

// pages returns contents of the given pages and some more bytes.
func pages(letters string, more int) string {
	var b strings.Builder
	for _, letter := range letters {
		b.WriteString(strings.Repeat(string(letter), pageBytes))
	}
	return b.String() + strings.Repeat("+", more)
}

const zeroLetter = "\x00"

// TestLostPages: pages lost by a failed sync are lost for every later sync; only those
// written again reach the disk.
func TestLostPages(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		t.Run(fmt.Sprint("evicted ", evicted), func(t *testing.T) {
			mem, r := startedMem(t)
			r.writeSynced(t, "a", pages("a", 10))
			require.NoError(t, r.SyncDir(r.dir))
			r.FS = losing(mem, evicted)
			f := r.openAppend(t, "a")
			_, err := f.Write([]byte(pages("bc", 0)))
			require.NoError(t, err)
			assert.ErrorIs(t, f.Sync(), errInjected)
			assert.ErrorIs(t, f.Sync(), errInjected)
			_, err = f.WriteAt([]byte("x"), 0)
			assert.ErrorIs(t, err, errInjected)

			all := pages("a", 10) + pages("bc", 0)
			onDisk := pages("a", 10) + strings.Repeat(zeroLetter, 2*pageBytes)
			shown := map[bool]string{false: all, true: onDisk}[evicted]
			assert.True(t, shown == r.read(t, "a"))
			again := r.openAppend(t, "a")
			require.NoError(t, again.Sync(), "another descriptor does not report the failure")
			assert.True(t, shown == r.read(t, "a"))
			for _, keep := range []Keep{KeepSynced, KeepTorn(1), KeepReordered(1)} {
				assert.True(t, onDisk == tree(t, mem.CrashClone(keep), "/d")["a"])
			}

			// Rewrite a byte of the second page, and write after the end of the file.
			_, err = again.WriteAt([]byte(shown[pageBytes+5:][:1]), pageBytes+5)
			require.NoError(t, err)
			require.NoError(t, again.Sync())
			onDisk = shown[:2*pageBytes] + onDisk[2*pageBytes:]
			assert.True(t, onDisk == tree(t, mem.CrashClone(KeepSynced), "/d")["a"])
			_, err = again.Write([]byte("end"))
			require.NoError(t, err)
			require.NoError(t, again.Sync())
			onDisk = onDisk[:3*pageBytes] + shown[3*pageBytes:] + "end"
			assert.True(t, onDisk == tree(t, mem.CrashClone(KeepSynced), "/d")["a"])
		})
	}
}

func TestLostPagesOfAnAppendMap(t *testing.T) {
	mem, r := startedMem(t)
	r.FS = losing(mem, false)
	m, err := r.CreateAppendMap(r.path("log"), 8)
	require.NoError(t, err)
	require.NoError(t, r.SyncDir(r.dir))
	_, err = m.Append([]byte("1234"))
	require.NoError(t, err)
	assert.ErrorIs(t, m.Sync(4), errInjected)
	require.NoError(t, m.Close())
	assert.Equal(t, "1234", r.read(t, "log"))
	require.NoError(t, r.openAppend(t, "log").Sync())
	assert.Equal(t, "\x00\x00\x00\x00", tree(t, mem.CrashClone(KeepSynced), "/d")["log"])
}

// TestLostPagesOfRandomHistories compares random writes and failing syncs with the
// expected pages.
func TestLostPagesOfRandomHistories(t *testing.T) {
	random := testseed.Rand(t)
	histories := 300
	if race.Enabled {
		histories = 30
	}
	for range histories {
		mem, r := startedMem(t)
		r.write(t, "a", "")
		require.NoError(t, r.SyncDir(r.dir))
		var shown, onDisk []byte
		dirty, lost := map[int]bool{}, map[int]bool{}
		touch := func(from, to int) {
			for page := from / pageBytes; from < to && page*pageBytes < to; page++ {
				dirty[page] = true
				delete(lost, page)
			}
		}
		for range 1 + random.IntN(12) {
			failing := random.IntN(3) == 0
			f, err := NewFault(mem, func(op Op) error {
				if failing && op.Kind == OpSync {
					return &LostPagesError{Err: errInjected}
				}
				return nil
			}).OpenAppend("/d/a")
			require.NoError(t, err)
			p := bytes.Repeat([]byte{byte(1 + random.IntN(255))}, random.IntN(3*pageBytes))
			if random.IntN(2) == 0 {
				_, err = f.Write(p)
				touch(len(shown), len(shown)+len(p))
				shown = append(shown, p...)
			} else if len(shown) > 0 {
				at := random.IntN(len(shown))
				p = p[:min(len(p), len(shown)-at)]
				_, err = f.WriteAt(p, int64(at))
				touch(at, at+len(p))
				copy(shown[at:], p)
			}
			require.NoError(t, err)
			if random.IntN(2) == 0 {
				onDisk = append(onDisk, make([]byte, len(shown)-len(onDisk))...)
				for page := range dirty {
					if failing {
						lost[page] = true
						continue
					}
					copy(onDisk[page*pageBytes:], shown[page*pageBytes:min(len(shown), (page+1)*pageBytes)])
				}
				clear(dirty)
				require.Equal(t, failing, f.Sync() != nil)
			}
			require.NoError(t, f.Close())
			require.True(t, string(shown) == r.read(t, "a"))
			got := tree(t, mem.CrashClone(KeepSynced), "/d")["a"]
			require.True(t, strings.HasPrefix(string(onDisk), got), "%d bytes, want some of %d", len(got), len(onDisk))
			require.True(t, strings.Trim(string(onDisk[len(got):]), zeroLetter) == "")
			maybe := tree(t, mem.CrashClone(KeepRandom(random.Uint64())), "/d")["a"]
			for i := range maybe {
				require.True(t, maybe[i] == shown[i] || i >= len(onDisk) && maybe[i] == 0 || i < len(onDisk) && maybe[i] == onDisk[i])
			}
		}
	}
}

// TestDeadProcessHasSyncedNothing: all writes of a killed process survive it, and the
// unsynced ones are lost in a later power cut.
func TestDeadProcessHasSyncedNothing(t *testing.T) {
	mem, r := startedMem(t)
	r.write(t, "new", "content")
	require.NoError(t, r.Rename(r.path("old"), r.path("renamed")))
	require.NoError(t, r.MkdirAll(r.path("e")))
	r.FS = losing(mem, false)
	r.write(t, "lost", "lost")
	f := r.openAppend(t, "lost")
	assert.Error(t, f.Sync())
	require.NoError(t, f.Close())
	before := tree(t, mem, "/d")

	killed := mem.ProcessCrashClone()
	assert.Equal(t, before, tree(t, killed, "/d"))
	assert.Equal(t, before, tree(t, killed.ProcessCrashClone(), "/d"))
	assert.Equal(t, map[string]string{"old": "old"}, tree(t, killed.CrashClone(KeepSynced), "/d"))
	free, err := mem.Free("/d")
	require.NoError(t, err)
	left, err := killed.Free("/d")
	require.NoError(t, err)
	assert.Equal(t, free, left)

	again := testFS{FS: killed, dir: "/d"}
	require.NoError(t, again.SyncDir("/d"))
	for name := range before {
		f := again.openAppend(t, name)
		require.NoError(t, f.Sync())
	}
	assert.Equal(t, map[string]string{"new": "content", "renamed": "old", "lost": "\x00\x00\x00\x00"},
		tree(t, killed.CrashClone(KeepSynced), "/d"))
	assert.Equal(t, map[string]string{"old": "old"}, tree(t, mem.CrashClone(KeepSynced), "/d"), "CrashClone changed the original")
}
