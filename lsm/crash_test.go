package lsm

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// history is the workload of the crash and fault tests: write i is a batch that
// sets "counter" to i and changes other keys in a way that depends on i alone.
type history struct {
	seed   uint64
	states []map[string]string // after write i, as far as computed in advance
}

func newHistory(seed uint64, writes int) history {
	h := history{seed: seed}
	state := map[string]string{}
	h.states = append(h.states, maps.Clone(state))
	for i := 1; i <= writes; i++ {
		h.apply(state, i)
		h.states = append(h.states, maps.Clone(state))
	}
	return h
}

func (h history) batch(i int) *Batch {
	r := rand.New(rand.NewPCG(h.seed, uint64(i)))
	b := new(Batch)
	_ = b.Set([]byte("counter"), []byte(strconv.Itoa(i)))
	for range r.IntN(4) {
		key := fmt.Appendf(nil, "key%02d", r.IntN(40))
		if r.IntN(4) == 0 {
			_ = b.Delete(key)
		} else {
			value := make([]byte, r.IntN(200))
			for j := range value {
				value[j] = byte(r.Uint32())
			}
			_ = b.Set(key, value)
		}
	}
	return b
}

// apply changes a state as write i does.
func (h history) apply(state map[string]string, i int) {
	ops, err := decodeBatch(h.batch(i).encoded())
	for err == nil && ops.count > 0 {
		var o op
		if o, err = ops.next(); o.kind == opDelete {
			delete(state, string(o.key))
		} else {
			state[string(o.key)] = string(o.value)
		}
	}
}

// stateAt is what the first n writes make.
func (h history) stateAt(n int) map[string]string {
	if n < len(h.states) {
		return h.states[n]
	}
	state := map[string]string{}
	for i := 1; i <= n; i++ {
		h.apply(state, i)
	}
	return state
}

// read returns all that a store holds.
func read(db *DB) (map[string]string, error) {
	state := map[string]string{}
	it := db.NewIter(nil)
	for ok := it.First(); ok; ok = it.Next() {
		state[string(it.Key())] = string(it.Value())
	}
	return state, errors.CombineErrors(it.Err(), it.Close())
}

// verifyPrefix opens a store and makes sure that it holds the first n writes of
// a history for some n from least to most, checks out, and can be written to.
func (h history) verifyPrefix(fsys vfs.FS, o Options, least, most int) error {
	o.FS = fsys
	last := -1
	for range 2 {
		db, err := Open("db", &o)
		if err != nil {
			return err
		}
		state, err := read(db)
		n, _ := strconv.Atoi(state["counter"])
		switch {
		case err != nil:
		case n < least || n > most:
			err = errors.Newf("%d writes recovered, want %d to %d", n, least, most)
		case last >= 0 && n != last:
			err = errors.Newf("%d writes after another Open, %d before", n, last)
		case !maps.Equal(state, h.stateAt(n)):
			err = errors.Newf("not the state after write %d", n)
		default:
			err = db.Check()
		}
		if err == nil {
			err = db.Apply(h.batch(n + 1))
		}
		if err = errors.CombineErrors(err, db.Close()); err != nil {
			return err
		}
		last, least, most = n+1, n+1, n+1
	}
	return nil
}

// TestCrash takes the disk away before every operation on the file system, in
// several ways, and opens what is left.
func TestCrash(t *testing.T) {
	for name, durability := range map[string]Durability{"process crash": ProcessCrash, "power loss": PowerLoss, "none": None} {
		t.Run(name, func(t *testing.T) {
			r := testseed.Rand(t)
			o := Options{MemtableBytes: minMemtableBytes, Durability: durability}
			h := newHistory(r.Uint64(), 152)
			mem := vfs.NewMem()
			var begun, acknowledged, synced atomic.Int64
			var one sync.Mutex
			tally := crashtest.NewTally(t, "crashes")
			sparing := crashtest.Share(4, 1) // one in so many operations is crashed before
			if underRace {
				sparing = 16
			}
			crash := func(op vfs.Op) error {
				one.Lock()
				defer one.Unlock()
				if r.IntN(sparing) != 0 {
					return nil
				}
				durable, alive := int(synced.Load()), int(acknowledged.Load())
				if durability == PowerLoss {
					durable = alive
				}
				if durability == None {
					alive = durable
				}
				for _, way := range crashtest.Ways(r) {
					least := durable
					if way.ProcessOnly {
						least = alive
					}
					tally.Case()
					disk := mem.CrashClone(way.Keep)
					again := disk.CrashClone(vfs.KeepAll)
					if err := h.verifyPrefix(disk, o, least, int(begun.Load())); err != nil {
						t.Errorf("before %v, %s kept: %+v", op, way.Name, err)
					}
					if r.IntN(40) == 0 {
						h.crashRecovery(t, tally, again, o, least, int(begun.Load()), r)
					}
				}
				return nil
			}
			o.FS = vfs.NewFault(mem, crash)
			db, err := Open("db", &o)
			require.NoError(t, err)
			for i := 1; i <= 150; i++ {
				begun.Store(int64(i))
				require.NoError(t, db.Apply(h.batch(i)))
				acknowledged.Store(int64(i))
				switch {
				case i%40 == 0:
					require.NoError(t, db.Sync())
					synced.Store(int64(i))
				case i%75 == 0:
					require.NoError(t, db.Checkpoint(fmt.Sprintf("checkpoint%d", i)))
					synced.Store(int64(i))
				}
			}
			require.NoError(t, db.WaitIdle(t.Context()))
			require.NoError(t, db.Close())
		})
	}
}

// crashRecovery crashes again while a store is opened after a crash.
func (h history) crashRecovery(t *testing.T, tally *crashtest.Tally, mem *vfs.Mem, o Options, least, most int, r *rand.Rand) {
	o.FS = vfs.NewFault(mem, func(op vfs.Op) error {
		tally.Case()
		if err := h.verifyPrefix(mem.CrashClone(vfs.KeepRandom(r.Uint64())), o, least, most); err != nil {
			t.Errorf("in recovery, before %v: %+v", op, err)
		}
		return nil
	})
	db, err := Open("db", &o)
	if err != nil {
		t.Errorf("recovery: %+v", err)
		return
	}
	if err := db.Close(); err != nil {
		t.Errorf("close after recovery: %+v", err)
	}
}

// TestFault has one operation on the file system fail, or all from one on, and
// makes sure that every write that was acknowledged is there, and none that was
// refused, but perhaps for one that a log refused and no write followed.
func TestFault(t *testing.T) {
	r := testseed.Rand(t)
	tally := crashtest.NewTally(t, "faults")
	for _, forever := range []bool{false, true} {
		for k := int64(1); k < 700; k += 1 + r.Int64N(int64(crashtest.Share(8, 1))) {
			tally.Case()
			faultAt(t, history{seed: r.Uint64()}, k, forever)
			if t.Failed() {
				t.Fatalf("operation %d, forever: %v", k, forever)
			}
		}
	}
}

func faultAt(t *testing.T, h history, k int64, forever bool) {
	mem := vfs.NewMem()
	var healed atomic.Bool
	injected := errors.New("injected")
	o := Options{MemtableBytes: minMemtableBytes, FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if !healed.Load() && (op.N == k || forever && op.N > k) {
			return injected
		}
		return nil
	})}
	state := map[string]string{}
	var maybe map[string]string // with the write whose log failed
	db, err := Open("db", &o)
	if err != nil {
		require.ErrorIs(t, err, injected)
	} else {
		for i := 1; i <= 80; i++ {
			db.mu.Lock()
			goodLog := db.mu.goodLog
			db.mu.Unlock()
			err := db.Apply(h.batch(i))
			if err == nil {
				h.apply(state, i)
				maybe = nil // what it followed on is not in that log any more
				continue
			}
			require.ErrorIs(t, err, injected)
			db.mu.Lock()
			failed := db.mu.goodLog != goodLog
			db.mu.Unlock()
			if failed {
				maybe = maps.Clone(state)
				h.apply(maybe, i)
			}
			got, err := read(db)
			require.NoError(t, err, "reads go on")
			require.Equal(t, state, got)
		}
		if err := db.Sync(); err != nil {
			require.ErrorIs(t, err, injected)
		}
		if err := db.Flush(); err != nil {
			require.ErrorIs(t, err, injected)
		}
		if err := db.Close(); err != nil {
			require.ErrorIs(t, err, injected)
		}
	}
	healed.Store(true)
	db, err = Open("db", &o)
	require.NoError(t, err)
	got, err := read(db)
	require.NoError(t, err)
	if maybe == nil || !maps.Equal(maybe, got) {
		require.Equal(t, state, got)
	}
	require.NoError(t, db.Check())
	require.NoError(t, db.Close())
}

const childDir = "LSM_TEST_CHILD_DIR"

// child writes a history until it is killed, and tells how far it has come.
func child(dir string) {
	db, err := Open(filepath.Join(dir, "db"), &Options{MemtableBytes: 64 << 10})
	if err != nil {
		panic(err)
	}
	h := history{seed: 1}
	value, err := db.Get(nil, []byte("counter"))
	if err != nil && !errors.Is(err, ErrNotFound) {
		panic(err)
	}
	n, _ := strconv.Atoi(string(value))
	for i := n + 1; ; i++ {
		if err := db.Apply(h.batch(i)); err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

func TestKill9LosesNothing(t *testing.T) {
	r := testseed.Rand(t)
	dir := t.TempDir()
	h := history{seed: 1}
	acknowledged := 0
	for range 5 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), childDir+"="+dir)
		command.Stderr = os.Stderr
		output, err := command.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		lines := bufio.NewScanner(output)
		for range 200 + r.IntN(1500) {
			require.True(t, lines.Scan())
			acknowledged, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		require.NoError(t, command.Process.Kill())
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				acknowledged = n
			}
		}
		_, _ = io.Copy(io.Discard, output)
		_ = command.Wait()

		o := Options{ReadOnly: true}
		db, err := Open(filepath.Join(dir, "db"), &o)
		require.NoError(t, err)
		state, err := read(db)
		require.NoError(t, err)
		n, err := strconv.Atoi(state["counter"])
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, acknowledged)
		require.True(t, maps.Equal(h.stateAt(n), state), "not the state after write %d", n)
		require.NoError(t, db.Check())
		require.NoError(t, db.Close())
	}
}
