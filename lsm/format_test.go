package lsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

var goldenID = table.StoreID{0xd0, 0xc5, 0x70, 4: 0x01, 15: 0x0f}

// goldenManifest encodes the manifest of docs/format/manifest.md, of the table of table.md.
func goldenManifest() []byte {
	facts := table.Facts{
		Number: 7, FileBytes: 0x181, Entries: 2, Tombstones: 1, KeyBytes: 9, ValueBytes: 3,
		FirstSequence: 11, LastSequence: 14, FooterCRC: 0xa23d80df,
	}
	return (&manifest{id: goldenID, nextNumber: 9, lastSequence: 14, firstLog: 8, tables: []table.Facts{facts}}).encode()
}

func goldenBatch(t testing.TB) []byte {
	var batch Batch
	require.NoError(t, batch.Set([]byte("apple"), []byte("red")))
	require.NoError(t, batch.Delete([]byte("pear")))
	return batch.encoded()
}

// TestGolden compares the writer's output with the files of this version, which every
// later version must read.
func TestGolden(t *testing.T) {
	for name, b := range map[string][]byte{"manifest-v0": goldenManifest(), "batch-v0": goldenBatch(t)} {
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, b, name)
	}
}

// TestFormatPages checks the byte examples in docs/format.
func TestFormatPages(t *testing.T) {
	text, err := os.ReadFile("../docs/format/manifest.md")
	require.NoError(t, err)
	withoutSpaces := strings.NewReplacer(" ", "")
	for _, example := range [][]byte{goldenManifest(), goldenBatch(t)} {
		require.Contains(t, withoutSpaces.Replace(string(text)), withoutSpaces.Replace(hex.Dump(example)))
	}
}

func TestNewerVersionIsNotCorruption(t *testing.T) {
	newer := func(b []byte) []byte {
		binary.LittleEndian.PutUint16(b[12:], 1)
		binary.LittleEndian.PutUint32(b[8:], checksum.Of(b[12:]))
		return b
	}
	_, fault := decodeManifest(newer(goldenManifest()))
	require.True(t, fault.Newer)
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("db"))
	require.NoError(t, vfs.WriteFileAtomic(fsys, "db/MANIFEST", newer(goldenManifest())))
	_, err := Open("db", &Options{FS: fsys})
	require.ErrorIs(t, err, ErrNewerVersion)
	require.NotErrorIs(t, err, ErrCorrupt)
}

// damages are the modifications of a byte, and the share of the bytes that is tested: in
// general, and with -short or under the race detector.
var damages = []struct {
	name          string
	do            func(b []byte, at int) []byte
	sparing, slow int
}{
	{"flipped", func(b []byte, at int) []byte { b[at] ^= byte(1 + at%255); return b }, 1, 10},
	{"zeroed", func(b []byte, at int) []byte { b[at] = 0; return b }, 5, 50},
	{"cut", func(b []byte, at int) []byte { return b[:at] }, 5, 50},
}

// TestEveryByteDamaged flips bits of every byte of a store of several blocks, one at a time, and zeroes
// bytes and truncates files at offsets a few bytes apart, from a random one on; a soak does each at
// every byte. Reads are correct or return an error that names the file.
func TestEveryByteDamaged(t *testing.T) {
	random := testseed.Rand(t)
	fsys := vfs.NewMem()
	o := Options{FS: fsys}
	h := history{seed: 3}
	db, err := Open("db", &o)
	require.NoError(t, err)
	for i := 1; i <= 60; i++ {
		require.NoError(t, db.Apply(h.batch(i)))
	}
	want := maps.Clone(h.stateAt(60))
	for _, key := range []string{"block1", "block2", "block3"} {
		want[key] = strings.Repeat(key, 250)
		set(t, db, key, want[key])
	}
	require.NoError(t, db.Flush())
	set(t, db, "in the log", "too")
	want["in the log"] = "too"
	require.NoError(t, db.Sync())
	require.Greater(t, len(partsOf(db.schedule.current.Load().tables[0].Mapped()).blocks), 1)
	require.NoError(t, db.Close())

	names, err := fsys.List("db")
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		files[name], err = vfs.ReadFile(fsys, filepath.Join("db", name))
		require.NoError(t, err)
	}
	require.Contains(t, files, filtersName)
	for name, whole := range files {
		if name == lockName {
			continue
		}
		for _, damage := range damages {
			sparing := crashtest.Share(damage.sparing, 1)
			if race.Enabled || testing.Short() {
				sparing = damage.slow
			}
			for i := random.IntN(sparing); i < len(whole); i += sparing {
				damaged := damage.do(bytes.Clone(whole), i)
				if bytes.Equal(damaged, whole) {
					continue
				}
				other := vfs.NewMem()
				require.NoError(t, other.MkdirAll("db"))
				for file, b := range files {
					if file == name {
						b = damaged
					}
					writeFile(t, other, filepath.Join("db", file), b)
				}
				requireHonest(t, other, name, fmt.Sprintf("%s, byte %d %s", name, i, damage.name), want)
			}
		}
	}
}

func writeFile(t *testing.T, fsys vfs.FS, name string, b []byte) {
	f, err := fsys.Create(name)
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// requireHonest reads a store with one damaged file in every way. A truncated log may
// have lost its last write, as after a power cut.
func requireHonest(t *testing.T, fsys vfs.FS, name, what string, want map[string]string) {
	isLog := strings.HasSuffix(name, logSuffix)
	torn := maps.Clone(want)
	delete(torn, "in the log")
	sound := func(err error) bool {
		if err == nil {
			return true
		}
		var damage *CorruptionError
		require.ErrorIs(t, err, ErrCorrupt, what)
		require.True(t, errors.As(err, &damage))
		require.Contains(t, damage.Path, name, what)
		return false
	}
	db, err := Open("db", &Options{FS: fsys, ReadOnly: true})
	if !sound(err) {
		return
	}
	defer db.Close()
	if state, err := read(db); sound(err) {
		if isLog && strings.HasSuffix(what, "cut") && maps.Equal(torn, state) {
			want = torn
		}
		require.Equal(t, want, state, what)
	}
	for key, value := range want {
		if got, err := db.Get(nil, []byte(key)); sound(err) {
			require.Equal(t, value, string(got), what)
		}
	}
	for _, key := range []string{"", "key", "key99", "zzz"} {
		_, err := db.Get(nil, []byte(key))
		require.True(t, errors.Is(err, ErrNotFound) || !sound(err))
	}
	// The mark of a log's last sync repeats what the records prove.
	if !isLog {
		require.ErrorIs(t, db.Check(), ErrCorrupt, "%s: damage that Check does not find", what)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(goldenManifest())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 12 { // pass the checksum
			binary.LittleEndian.PutUint32(b[8:], checksum.Of(b[12:]))
		}
		if m, fault := decodeManifest(b); fault == nil {
			again, fault := decodeManifest(m.encode())
			require.Nil(t, fault)
			require.Equal(t, m, again)
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(goldenBatch(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		count, err := checkBatch(b)
		if err != nil {
			return
		}
		m := memtable.New(nil, 64<<20, 0, memtable.Account{})
		require.NoError(t, applyBatch(m, b, 1))
		require.EqualValues(t, count, m.Last())
	})
}
