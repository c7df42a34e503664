//go:build linux || darwin

package lsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/lsm/internal/table"
)

// TestTablesDamagedInPlace damages the tables of an open store one after the other, in
// different ways, before and after blocks are verified, under iterators and during
// merges. Every result is correct or an error that names the damaged table. After the
// repair everything is correct: no merge has written damaged bytes to a new table.
func TestTablesDamagedInPlace(t *testing.T) {
	tally := crashtest.NewTally(t, "tables damaged in place")
	for range crashtest.Share(3, 300) {
		random := testseed.Rand(t)
		a := newAttack(t, random, filepath.Join(t.TempDir(), "db"))
		for range 12 {
			a.round()
			tally.Case()
		}
		a.finish()
	}
}

// attack is a store whose tables are damaged, and its expected contents.
type attack struct {
	t      *testing.T
	random *rand.Rand
	dir    string
	o      *Options
	db     *DB
	key    func(i int) []byte
	value  func() int // length of the next filler
	writes uint64     // number of rounds
	state  map[string]string
}

// attackKeys is the maximum number of keys.
const attackKeys = 1500

func newAttack(t *testing.T, random *rand.Rand, dir string) *attack {
	a := &attack{t: t, random: random, dir: dir, state: map[string]string{}}
	a.o = &Options{
		FilterBytes: []int64{-1, 1 << 10, 0}[random.IntN(3)],
		MergeRule:   []MergeRule{MergeNever, SizeTiered}[random.IntN(2)],
	}
	shapes := []string{"words", "even", "mixed"}
	a.key = keyShapes[shapes[random.IntN(len(shapes))]]
	a.value = func() int { return 8 }
	if random.IntN(2) == 0 {
		a.value = func() int {
			if random.IntN(100) == 0 {
				return random.IntN(4 * blockSize)
			}
			return random.IntN(60)
		}
	}
	var err error
	a.db, err = Open(dir, a.o)
	require.NoError(t, err)
	for range 2 + random.IntN(3) {
		a.write()
		require.NoError(t, a.db.Flush())
	}
	return a
}

// write sets and deletes some keys. Each value identifies its key and round.
func (a *attack) write() {
	a.writes++
	for range 100 + a.random.IntN(500) {
		key := a.key(a.random.IntN(attackKeys))
		if a.random.IntN(5) == 0 {
			delete(a.state, string(key))
			require.NoError(a.t, a.db.Delete(key))
			continue
		}
		value := binary.LittleEndian.AppendUint64(nil, a.writes)
		value = append(value, make([]byte, a.value())...)
		value = binary.LittleEndian.AppendUint32(value, checksum.Of(key, value))
		a.state[string(key)] = string(value)
		require.NoError(a.t, a.db.Set(key, value))
	}
}

// round damages a table, reads in all ways, and repairs the table.
func (a *attack) round() {
	v, err := a.db.acquire()
	require.NoError(a.t, err)
	defer v.unref()
	if len(v.tables) == 0 {
		return
	}
	victim := v.tables[a.random.IntN(len(v.tables))]
	other := v.tables[a.random.IntN(len(v.tables))]
	r := newReader(a.t, a.db, maps.Clone(a.state), victim.Path)
	if a.random.IntN(2) == 0 { // else blocks are verified when they are read
		a.read(r, attackKeys/2)
	}
	snapshot := a.db.NewSnapshot()
	defer snapshot.Close()
	it := a.db.NewIter(nil)
	defer it.Close()
	at := a.random.IntN(len(r.sorted))
	require.True(a.t, it.SeekGE([]byte(r.sorted[at])))

	d := openDamage(a.t, victim.Path)
	if d == nil {
		return
	}
	defer d.close()
	d.do(a.random, other)
	a.read(r, 100)
	r.walk(it, true, at, a.random.IntN(2) == 0, len(r.sorted))
	a.readSnapshot(r, snapshot)
	if a.random.IntN(4) == 0 {
		r.checked(a.db.Check(), d.changed && !a.merges())
		r.checked(a.db.Scrub(a.t.Context(), unlimited, nil), d.changed && !a.merges())
	}
	if a.random.IntN(3) == 0 { // a flush or merge reads the table, possibly until after the repair
		a.write()
		r.honest(a.db.Flush())
		a.read(newReader(a.t, a.db, a.state, victim.Path), 100)
	}
	d.undo()
	// No damaged byte is cached: all results are correct at once.
	r = newReader(a.t, a.db, a.state, "no table is damaged")
	a.read(r, 50)
	r.seek(nil, false, len(r.sorted)+1)
}

func (a *attack) merges() bool { return a.o.MergeRule != MergeNever }

// checked requires that a check has found damage, unless the table may be removed.
func (r *reader) checked(err error, found bool) {
	if found {
		require.Error(r.t, err)
	}
	if err != nil {
		r.honest(err)
	}
}

// read looks up keys in all ways.
func (a *attack) read(r *reader, n int) {
	for n > 0 {
		keys := make([][]byte, 1+a.random.IntN(2*groupKeys))
		for i := range keys {
			keys[i] = a.key(a.random.IntN(attackKeys * 5 / 4))
		}
		n -= len(keys)
		r.multiGet(keys)
		for _, key := range keys[:min(5, len(keys))] {
			r.get(key)
			r.seek(key, a.random.IntN(2) == 0, a.random.IntN(100))
		}
	}
}

// readSnapshot looks up keys in a snapshot and scans it.
func (a *attack) readSnapshot(r *reader, s *Snapshot) {
	for range 20 {
		key := a.key(a.random.IntN(attackKeys))
		value, err := s.Get(nil, key)
		r.answer(key, value, err)
	}
	it := s.NewIter(nil)
	defer it.Close()
	if a.random.IntN(2) == 0 {
		r.walk(it, it.First(), 0, false, len(r.sorted)+1)
	} else {
		r.walk(it, it.Last(), len(r.sorted)-1, true, len(r.sorted)+1)
	}
}

// finish reopens the store and reads all of it.
func (a *attack) finish() {
	require.NoError(a.t, a.db.Close())
	a.db = open(a.t, a.dir, a.o)
	require.NoError(a.t, a.db.Check())
	r := newReader(a.t, a.db, a.state, "no table is damaged")
	for i := range attackKeys {
		r.get(a.key(i))
	}
	r.seek(nil, false, len(r.sorted)+1)
}

// damage is a file that is modified while it is mapped.
type damage struct {
	t       *testing.T
	file    *os.File
	whole   []byte // original contents
	changed bool   // the contents differ
	name    string
}

// openDamage opens a file; nil if a merge has removed it.
func openDamage(t *testing.T, path string) *damage {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	whole, err := io.ReadAll(file)
	require.NoError(t, err)
	return &damage{t: t, file: file, whole: whole}
}

func (d *damage) close() { require.NoError(d.t, d.file.Close()) }

// do damages the file in a random way, usually within a randomly chosen part of the
// table.
func (d *damage) do(random *rand.Rand, other *table.Reader) {
	size := len(d.whole)
	p := partsOf(d.whole)
	parts := [][2]int{
		{0, tableHeaderSize}, {tableHeaderSize, p.index}, {tableHeaderSize, p.index}, {p.index, p.filter}, {p.index, p.filter},
		{p.filter, p.properties}, {p.properties, p.footer}, {p.footer, size}, {0, size},
	}
	part := parts[random.IntN(len(parts))]
	from := part[0] + random.IntN(part[1]-part[0])
	to := min(part[1], from+1+random.IntN(1<<random.IntN(14)))
	b := bytes.Clone(d.whole)
	ways := []struct {
		name string
		do   func()
	}{
		{"flip", func() { b[from] ^= 1 << random.IntN(8) }},
		{"zero", func() { clear(b[from:to]) }},
		{"random", func() { copy(b[from:to], randomBytes(random, to-from)) }},
		{"insert", func() {
			inserted := randomBytes(random, 1+random.IntN(4))
			b = append(append(b[:from:from], inserted...), d.whole[from:]...)
		}},
		{"delete", func() { b = append(b[:from:from], b[min(size, from+1+random.IntN(4)):]...) }},
		{"truncate", func() { b = b[:from] }},
		{"truncate to pages", func() { b = b[:from&^(blockSize-1)] }},
		{"another table", func() { copy(b[from:to], other.Mapped()[min(from, len(other.Mapped())):]) }},
		{"another place", func() { copy(b[from:to], d.whole[random.IntN(size):]) }},
		{"another block", func() {
			start, end := p.block(random.IntN(len(p.blocks)))
			copy(b[start:end], d.whole[p.blocks[random.IntN(len(p.blocks))]:])
		}},
	}
	way := ways[random.IntN(len(ways))]
	way.do()
	d.name = fmt.Sprintf("%s from %d to %d of %d", way.name, from, to, size)
	d.changed = len(b) < size || !bytes.Equal(b[:size], d.whole)
	d.write(b)
}

// undo repairs the file.
func (d *damage) undo() { d.write(d.whole) }

// write replaces the contents by b. The file is never shorter than both contents.
func (d *damage) write(b []byte) {
	_, err := d.file.WriteAt(b, 0)
	require.NoError(d.t, err)
	require.NoError(d.t, d.file.Truncate(int64(len(b))))
}

// TestTablesDamagedAtAnyMoment damages and repairs tables repeatedly while other
// goroutines read.
func TestTablesDamagedAtAnyMoment(t *testing.T) {
	tally := crashtest.NewTally(t, "tables damaged while they were read")
	for range crashtest.Share(2, 200) {
		random := testseed.Rand(t)
		a := newAttack(t, random, filepath.Join(t.TempDir(), "db"))
		require.NoError(t, a.db.WaitIdle(t.Context()))
		v, err := a.db.acquire()
		require.NoError(t, err)
		var readers sync.WaitGroup
		done := make(chan struct{})
		for range 2 {
			seed := random.Uint64()
			readers.Go(func() { a.hurriedRead(rand.New(rand.NewPCG(seed, 0)), done) })
		}
		for range 100 {
			victim := v.tables[random.IntN(len(v.tables))]
			d := openDamage(t, victim.Path)
			d.do(random, victim)
			a.hurriedRead(random, nil)
			d.undo()
			d.close()
			tally.Case()
		}
		close(done)
		readers.Wait()
		v.unref()
		a.finish()
	}
}

// hurriedRead looks up keys until done is closed, or once if it is nil. Any table may
// be damaged at any time.
func (a *attack) hurriedRead(random *rand.Rand, done chan struct{}) {
	for {
		key := a.key(random.IntN(attackKeys))
		value, err := a.db.Get(nil, key)
		a.hurriedAnswer(key, value, err, false)
		value, err = a.db.GetVerified(nil, key)
		a.hurriedAnswer(key, value, err, true)
		_ = a.db.MultiGet([][]byte{key, a.key(0), a.key(1)}, func(i int, value []byte, err error) error {
			if i == 0 {
				a.hurriedAnswer(key, value, err, false)
			}
			return nil
		})
		it := a.db.NewIter(nil)
		last := key
		for ok := it.SeekGE(key); ok && len(last) < 5*len(key); ok = it.Next() {
			a.hurriedAnswer(it.Key(), it.Value(), nil, true)
			last = append(last, key...)
		}
		if err := it.Err(); err != nil {
			a.hurriedAnswer(key, nil, err, true)
		}
		if err := it.Close(); err != nil {
			a.t.Error(err)
		}
		select {
		case <-done:
			return
		default:
			if done == nil {
				return
			}
		}
	}
}

// hurriedAnswer requires that a result is correct or an error that names a table.
func (a *attack) hurriedAnswer(key, value []byte, err error, verified bool) {
	want, there := a.state[string(key)]
	switch {
	case err == nil:
		if verified && want != string(value) {
			a.t.Errorf("%q has the verified value %x, want %x", key, value, want)
		}
	case errors.Is(err, ErrNotFound):
		if there {
			a.t.Errorf("%q exists and was not found", key)
		}
	case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnreadable):
		a.t.Errorf("%q: %+v", key, err)
	}
}
