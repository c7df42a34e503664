package digests

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

const testDir = "/jobs"

var testNow = time.Unix(1_800_000_000, 0)

// collection is a collection with what its table must have.
type collection struct {
	fs     vfs.FS
	layout shard.Layout
	live   map[string]Digest
}

func newCollection(shards int) *collection {
	c := &collection{fs: vfs.NewMem(), layout: shard.Layout{Shards: shards}, live: map[string]Digest{}}
	if shards > 1 {
		c.layout.Seed = 7
	}
	return c
}

func (c *collection) writer(t *testing.T) *shardset.Writer {
	w, err := shardset.Open(testDir, &shardset.Options{FS: c.fs, Layout: c.layout})
	require.NoError(t, err)
	return w
}

// put appends records.
func (c *collection) put(t *testing.T, records ...queue.Record) {
	w := c.writer(t)
	for _, r := range records {
		require.NoError(t, w.Put(r))
		if delete(c.live, string(r.ID)); !r.Delete && (r.Expires.IsZero() || r.Expires.After(testNow)) {
			c.live[string(r.ID)] = Of(r.Document, r.Expires)
		}
	}
	require.NoError(t, w.Close())
}

func (c *collection) open(t *testing.T) *Table {
	table, err := Open(t.Context(), testDir, &Options{FS: c.fs, Now: func() time.Time { return testNow }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}

// check compares the table.
func (c *collection) check(t *testing.T) {
	table := c.open(t)
	require.Equal(t, int64(len(c.live)), table.Rows())
	rows := map[int64]string{} // ids
	for id, want := range c.live {
		row, d, err := table.Find([]byte(id))
		require.NoError(t, err)
		require.GreaterOrEqual(t, row, int64(0), "%s has no row", id)
		require.Equal(t, want, d)
		again, err := table.Digest(row)
		require.NoError(t, err)
		require.Equal(t, want, again)
		rows[row] = id
	}
	require.Len(t, rows, len(c.live))
	ids := slices.Sorted(maps.Keys(c.live))
	found := make([]Found, len(ids)+1)
	require.NoError(t, table.FindAll(found, func(i int) []byte { return []byte(append(ids, "no such id")[i]) }))
	for i, id := range ids {
		require.Equal(t, id, rows[found[i].Row])
		require.Equal(t, c.live[id], found[i].Digest)
	}
	require.Equal(t, Found{Row: -1}, found[len(ids)])
	listed := map[string]bool{}
	row, _, err := table.Find([]byte("no such id"))
	require.NoError(t, err)
	require.Equal(t, int64(-1), row)
	require.NoError(t, table.IDs(t.Context(), func(id []byte, row int64) error {
		require.Equal(t, rows[row], string(id))
		listed[string(id)] = true
		return nil
	}))
	require.Len(t, listed, len(c.live))
	require.NoError(t, table.Close())
}

func record(id, document string) queue.Record {
	return queue.Record{ID: []byte(id), Document: []byte(document)}
}

// The table has the newest versions after any series of entries, whatever part of them it has
// read before.
func TestTableModel(t *testing.T) {
	random := testseed.Rand(t)
	fewRows(t, 20)
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			c := newCollection(shards)
			for range 12 {
				var records []queue.Record
				for range random.IntN(60) {
					r := queue.Record{ID: fmt.Append(nil, random.IntN(80)), Document: fmt.Append(nil, random.Uint64())}
					switch random.IntN(6) {
					case 0:
						r.Document, r.Delete = nil, true
					case 1:
						r.Expires = testNow.Add(time.Duration(random.IntN(100)-50) * time.Hour)
					}
					records = append(records, r)
				}
				c.put(t, records...)
				switch random.IntN(4) {
				case 0:
					require.NoError(t, remove(c.fs, filepath.Join(testDir, fileName)))
				case 1:
					for i := range shards {
						_, err := maintain.Compact(t.Context(), c.layout.Dir(testDir, i), &maintain.CompactOptions{FS: c.fs, Now: func() time.Time { return testNow }})
						require.NoError(t, err)
					}
				}
				c.check(t)
			}
		})
	}
}

// Another queue, and one whose last entries were taken back, have other digests.
func TestAnotherHistory(t *testing.T) {
	for _, shards := range []int{1, 4} {
		c := newCollection(shards)
		c.put(t, record("a", "1"), record("b", "2"), record("c", "3"))
		c.check(t)
		digests, err := vfs.ReadFile(c.fs, filepath.Join(testDir, fileName))
		require.NoError(t, err)

		other := newCollection(shards)
		other.put(t, record("b", "9"))
		require.NoError(t, vfs.WriteFileAtomic(other.fs, filepath.Join(testDir, fileName), digests))
		other.check(t)
		if shards > 1 {
			continue
		}

		c.put(t, record("a", "4"), record("d", "5"))
		c.check(t)
		_, err = maintain.Truncate(t.Context(), testDir, queue.Address{Segment: 2}, &maintain.TruncateOptions{FS: c.fs})
		require.NoError(t, err)
		c.live = map[string]Digest{"a": Of([]byte("1"), time.Time{}), "b": Of([]byte("2"), time.Time{}), "c": Of([]byte("3"), time.Time{})}
		c.check(t)
	}
}

// A file that is damaged in any byte, or cut, is made again.
func TestDamagedFile(t *testing.T) {
	c := newCollection(2)
	for i := range 5 {
		c.put(t, record(fmt.Sprint(i), "x"))
	}
	c.check(t)
	name := filepath.Join(testDir, fileName)
	whole, err := vfs.ReadFile(c.fs, name)
	require.NoError(t, err)
	require.Len(t, whole, 5*rowBytes+2*queue.PositionBytes+trailerBytes)
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		for _, content := range [][]byte{damaged, whole[:i]} {
			require.NoError(t, vfs.WriteFileAtomic(c.fs, name, content))
			c.check(t)
		}
	}
	one := newCollection(1)
	one.put(t, record("a", "1"))
	require.NoError(t, vfs.WriteFileAtomic(one.fs, name, whole)) // of other shards
	one.check(t)
}

// After a crash before each operation, and after a failure of each, the next Open returns the
// table.
func TestInterruptedUpdate(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes and faults")
	fewRows(t, 4)
	c := newCollection(1)
	c.put(t)
	for i := range 2 {
		c.check(t)
		var records []queue.Record
		for n := range 10 {
			records = append(records, record(fmt.Sprint(n%7), fmt.Sprint(i, n)))
		}
		c.put(t, records...)
	}
	disk := c.fs.(*vfs.Mem)
	fault := vfs.NewFault(disk, func(vfs.Op) error {
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			(&collection{disk.CrashClone(way.Keep), c.layout, c.live}).check(t)
		}
		return nil
	})
	before := disk.CrashClone(vfs.KeepAll)
	(&collection{fault, c.layout, c.live}).check(t)
	for k := range fault.Ops() {
		tally.Case()
		disk := before.CrashClone(vfs.KeepAll)
		table, err := Open(t.Context(), testDir, &Options{FS: vfs.NewFault(disk, func(op vfs.Op) error {
			if op.N == k+1 {
				return vfs.ErrNoSpace
			}
			return nil
		})})
		if err == nil {
			require.NoError(t, table.Close())
		}
		(&collection{disk, c.layout, c.live}).check(t)
	}
}

// A document that cannot be read differs from every document.
func TestUnreadableDocument(t *testing.T) {
	c := newCollection(1)
	w, err := shardset.Open(testDir, &shardset.Options{FS: c.fs, Codec: "none"})
	require.NoError(t, err)
	require.NoError(t, w.Put(record("a", "will be damaged")))
	require.NoError(t, w.Put(record("b", "intact")))
	require.NoError(t, w.Close())
	name := filepath.Join(testDir, "0000000001.seg")
	segment, err := vfs.ReadFile(c.fs, name)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(c.fs, name, []byte(strings.Replace(string(segment), "will be damaged", "will-be-damaged", 1))))
	table := c.open(t)
	require.Equal(t, int64(2), table.Rows())
	for id, document := range map[string]string{"a": "will be damaged", "b": "intact"} {
		row, d, err := table.Find([]byte(id))
		require.NoError(t, err)
		require.GreaterOrEqual(t, row, int64(0))
		require.Equal(t, id == "b", d == Of([]byte(document), time.Time{}))
	}
}

// find returns the index of the row of an id, or -1.
func find(rows []byte, id hash) int64 {
	s := startSearch(rows, id)
	for s.step(rows) {
	}
	return s.row
}

func TestRowsBefore(t *testing.T) {
	var rows []byte
	for n := range 40 {
		for i := range 41 {
			at, found := rowsBefore(rows, hash{byte(2 * i)})
			require.Equal(t, min(i, n)*rowBytes, at)
			require.Equal(t, i < n, found)
			at, found = rowsBefore(rows, hash{byte(2*i + 1)})
			require.Equal(t, min(i+1, n)*rowBytes, at)
			require.False(t, found)
		}
		r := row{id: hash{byte(2 * n)}}
		rows = r.append(rows)
	}
}

// A search finds each row, also among hashes that are not spread evenly.
func TestFind(t *testing.T) {
	random := testseed.Rand(t)
	for name, next := range map[string]func() uint64{
		"even":        random.Uint64,
		"all low":     func() uint64 { return random.Uint64N(1000) },
		"all high":    func() uint64 { return math.MaxUint64 - random.Uint64N(1000) },
		"exponential": func() uint64 { return 1 << random.IntN(64) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 3, 50, 3000} {
				have := map[hash]bool{}
				for range n {
					id := hash{8: byte(random.IntN(256))}
					v := next()
					for i := range 8 {
						id[i] = byte(v >> (56 - 8*i))
					}
					have[id] = true
				}
				sorted := slices.SortedFunc(maps.Keys(have), func(a, b hash) int { return slices.Compare(a[:], b[:]) })
				var rows []byte
				for _, id := range sorted {
					rows = (&row{id: id}).append(rows)
				}
				for i, id := range sorted {
					require.Equal(t, int64(i), find(rows, id))
					id[15]++
					require.Equal(t, int64(-1), find(rows, id))
				}
				for range 100 {
					id := hashOf(fmt.Append(nil, random.Uint64()))
					require.Equal(t, have[id], find(rows, id) >= 0)
				}
			}
		})
	}
}

// TestFormatPage compares the example in the description of the format with the written bytes.
func TestFormatPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/format/digests.md")
	require.NoError(t, err)
	expires := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	r := row{id: hashOf([]byte("17")), value: Of([]byte(`{"id":"17"}`), expires).Content, expiry: uint32(expires.Unix())}
	position := queue.Position{Queue: [16]byte([]byte("0123456789abcdef")), Next: queue.Address{Segment: 1, Block: 188}, Proof: queue.Proof{Chain: 0x01020304}}
	rows := r.append(nil)
	content, err := encodeEnd(1, []queue.Position{position}, crcOf(rows))
	require.NoError(t, err)
	content = append(rows, content...)
	parsed, positions, err := parse(content)
	require.NoError(t, err)
	require.Equal(t, rows, parsed)
	require.Equal(t, []queue.Position{position}, positions)
	withoutSpaces := strings.NewReplacer(" ", "")
	dump := withoutSpaces.Replace(hex.Dump(content))
	require.True(t, strings.Contains(withoutSpaces.Replace(string(page)), dump), hex.Dump(content))
}
