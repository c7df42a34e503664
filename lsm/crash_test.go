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
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// history is the workload of the crash and fault tests: write i is a batch that sets
// "counter" to i and changes other keys depending on i alone. Depending on the seed
// there are few keys, which are overwritten repeatedly, or many large ones, so that
// tables grow and merges run in addition to those in flushes.
type history struct {
	seed   uint64
	states []map[string]string // after write i, as far as computed
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
	keys, values := 40, 200
	if h.seed%2 == 1 {
		keys, values = 400, 600
	}
	b := new(Batch)
	_ = b.Set([]byte("counter"), []byte(strconv.Itoa(i)))
	for range r.IntN(4) {
		key := fmt.Appendf(nil, "key%02d", r.IntN(keys))
		if r.IntN(4) == 0 {
			_ = b.Delete(key)
		} else {
			value := make([]byte, r.IntN(values))
			for j := range value {
				value[j] = byte(r.Uint32())
			}
			if r.IntN(4) == 0 {
				value = slices.Concat(value, syncedLog()) // its sync mark must be ignored
			}
			_ = b.Set(key, value)
		}
	}
	return b
}

// syncedLog is a small log of another store, for example a backup stored as a value.
var syncedLog = sync.OnceValue(func() []byte {
	content, err := os.ReadFile(filepath.Join("..", "wal", "testdata", "v0.wal"))
	if err != nil {
		panic(err)
	}
	return content
})

// apply applies write i to a state.
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

// stateAt returns the state after the first n writes.
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

// read returns the contents of a store.
func read(db *DB) (map[string]string, error) {
	state := map[string]string{}
	it := db.NewIter(nil)
	for ok := it.First(); ok; ok = it.Next() {
		state[string(it.Key())] = string(it.Value())
	}
	return state, errors.CombineErrors(it.Err(), it.Close())
}

// verifyPrefix opens a store and checks that it has the first n writes of a history for
// some n from least to most, passes Check, and accepts writes.
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

// TestCrash simulates several kinds of crashes before every file operation and opens
// the remaining files.
func TestCrash(t *testing.T) {
	for name, durability := range map[string]Durability{"process crash": ProcessCrash, "power loss": PowerLoss, "none": None} {
		t.Run(name, func(t *testing.T) {
			tally := crashtest.NewTally(t, "crashes")
			for n := range uint64(crashtest.Share(2, 8)) {
				r := testseed.Rand(t)
				c := crashingStore{t: t, r: r, tally: tally, history: newHistory(r.Uint64()<<1|n%2, 152), mem: vfs.NewMem()}
				c.o = Options{MemtableBytes: minMemtableBytes, Durability: durability}
				c.run()
			}
		})
	}
}

// crashingStore is a store whose disk is cloned before its operations.
type crashingStore struct {
	history
	t     *testing.T
	tally *crashtest.Tally
	mem   *vfs.Mem
	o     Options
	// Number of writes that were begun, have returned, and are durable.
	begun, acknowledged, synced atomic.Int64

	one sync.Mutex
	r   *rand.Rand
}

func (c *crashingStore) run() {
	t, o := c.t, c.o
	o.FS = vfs.NewFault(c.mem, func(op vfs.Op) error {
		c.crash(op)
		return nil
	})
	db, err := Open("db", &o)
	require.NoError(t, err)
	for i := 1; i <= 150; i++ {
		c.begun.Store(int64(i))
		require.NoError(t, db.Apply(c.batch(i)))
		c.acknowledged.Store(int64(i))
		switch {
		case i%40 == 0:
			require.NoError(t, db.Sync())
			c.synced.Store(int64(i))
		case i%75 == 0:
			require.NoError(t, db.Checkpoint(fmt.Sprintf("checkpoint%d", i)))
			c.synced.Store(int64(i))
		}
	}
	require.NoError(t, db.WaitIdle(t.Context()))
	require.NoError(t, db.Close())
}

// crash opens the files that each kind of crash leaves at this moment.
func (c *crashingStore) crash(op vfs.Op) {
	c.one.Lock()
	defer c.one.Unlock()
	sparing := crashtest.Share(12, 1) // one in so many operations is preceded by a crash
	if race.Enabled {
		sparing = 48
	}
	if c.t.Failed() || c.r.IntN(sparing) != 0 {
		return
	}
	durable, alive := int(c.synced.Load()), int(c.acknowledged.Load())
	switch c.o.Durability {
	case PowerLoss:
		durable = alive
	case None:
		alive = durable
	}
	for _, way := range crashtest.Ways(c.r) {
		least := durable
		if way.ProcessOnly {
			least = alive
		}
		c.tally.Case()
		disk := c.mem.CrashClone(way.Keep)
		again := disk.CrashClone(vfs.KeepAll)
		if err := c.verifyPrefix(disk, c.o, least, int(c.begun.Load())); err != nil {
			c.t.Errorf("before %v, %s kept: %+v", op, way.Name, err)
		}
		if c.r.IntN(40) == 0 {
			c.crashRecovery(c.t, c.tally, again, c.o, durable, int(c.begun.Load()), c.r)
		}
	}
}

// crashRecovery cuts the power while a store is opened after a crash.
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

// TestFault injects each kind of disk failure at every operation, and repairs the disk
// while the store is open. All acknowledged writes survive, also a power cut after
// that. No failed write is visible, except possibly one that failed in the log and was
// not followed by another write.
func TestFault(t *testing.T) {
	r := testseed.Rand(t)
	faults, crashes := crashtest.NewTally(t, "faults"), crashtest.NewTally(t, "crashes")
	for _, failure := range crashtest.Failures() {
		for range crashtest.Share(1, 4) {
			for k := int64(1); ; k += 1 + r.Int64N(int64(crashtest.Share(10, 1))) {
				f := faultyStore{t: t, r: r, failure: failure, history: history{seed: r.Uint64()}, mem: vfs.NewMem(), state: map[string]string{}}
				f.disk = failure.At(k, f.mem)
				f.run(crashes)
				if f.disk.Failed() == 0 {
					break
				}
				faults.Case()
				if t.Failed() {
					t.Fatalf("%s at operation %d", failure.Name, k)
				}
			}
		}
	}
}

// faultyStore is a store on a failing disk, and its expected contents.
type faultyStore struct {
	history
	t       *testing.T
	r       *rand.Rand
	failure crashtest.Failure
	mem     *vfs.Mem
	disk    *crashtest.FailingDisk
	db      *DB
	next    int // write
	state   map[string]string
	maybe   map[string]string // with the write whose log failed; nil if there is none
}

func (f *faultyStore) run(crashes *crashtest.Tally) {
	o := Options{MemtableBytes: minMemtableBytes, FS: f.disk}
	var err error
	f.db, err = Open("db", &o)
	if err != nil {
		f.requireFailure(err)
	} else {
		f.write(60)
		if f.r.IntN(2) == 0 { // or reopen it after the repair
			f.disk.Heal()
			for f.db.Flush() != nil { // until the flusher has retried
			}
			f.maybe = nil
			f.write(10)
			f.requireFailure(f.db.Sync())
		}
		f.requireFailure(f.db.Close())
	}
	f.disk.Heal()
	f.db, err = Open("db", &o)
	require.NoError(f.t, err)
	got, err := read(f.db)
	require.NoError(f.t, err)
	if f.maybe == nil || !maps.Equal(f.maybe, got) {
		require.Equal(f.t, f.state, got)
	}
	f.state, f.maybe = got, nil
	f.write(10)
	require.NoError(f.t, f.db.Sync())
	require.NoError(f.t, f.db.Check())
	for _, way := range crashtest.Ways(f.r) {
		crashes.Case()
		crashed, err := Open("db", &Options{FS: f.mem.CrashClone(way.Keep)})
		require.NoError(f.t, err, way.Name)
		got, err := read(crashed)
		require.NoError(f.t, err, way.Name)
		require.Equal(f.t, f.state, got, way.Name)
		require.NoError(f.t, crashed.Close())
	}
	require.NoError(f.t, f.db.Close())
}

// requireFailure requires that an error is the injected one.
func (f *faultyStore) requireFailure(err error) {
	if err != nil {
		require.ErrorIs(f.t, err, f.failure.Err)
	}
}

// goodFrom changes when a log fails.
func (f *faultyStore) goodFrom() uint64 {
	logs := &f.db.writer.logs
	logs.mu.Lock()
	defer logs.mu.Unlock()
	return logs.mu.goodFrom
}

// write makes n writes, some of them failing, and reads after the failures.
func (f *faultyStore) write(n int) {
	for range n {
		f.next++
		goodFrom := f.goodFrom()
		err := f.db.Apply(f.batch(f.next))
		if err == nil {
			f.apply(f.state, f.next)
			f.maybe = nil // the log of the failed write is obsolete
			continue
		}
		f.requireFailure(err)
		if f.goodFrom() != goodFrom {
			f.maybe = maps.Clone(f.state)
			f.apply(f.maybe, f.next)
		}
		got, err := read(f.db)
		require.NoError(f.t, err, "reads still work")
		require.Equal(f.t, f.state, got)
	}
}

const childDir = "LSM_TEST_CHILD_DIR"

// child writes a history until it is killed, and prints its progress.
func child(dir string) {
	db, err := Open(filepath.Join(dir, "db"), &Options{MemtableBytes: 16 << 10}) // merges run most of the time
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

// TestKill9LosesNothing repeatedly kills a process that writes, flushes and merges on
// the real disk, and reads the store after each kill.
func TestKill9LosesNothing(t *testing.T) {
	r, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	for range crashtest.Share(1, 15) {
		dir := t.TempDir()
		for range crashtest.Share(5, 20) {
			acknowledged := killChild(t, dir, 100+r.IntN(1500))
			tally.Case()
			requireAcknowledged(t, dir, acknowledged)
		}
	}
}

// killChild starts a child that continues the store in dir and kills it after the given
// number of acknowledged writes. It returns the last acknowledged write.
func killChild(t *testing.T, dir string, writes int) (acknowledged int) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childDir+"="+dir)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(output)
	for range writes {
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
	return acknowledged
}

// requireAcknowledged requires that a store has a prefix of the child's writes with at
// least the acknowledged ones.
func requireAcknowledged(t *testing.T, dir string, acknowledged int) {
	db, err := Open(filepath.Join(dir, "db"), &Options{ReadOnly: true})
	require.NoError(t, err)
	state, err := read(db)
	require.NoError(t, err)
	n, err := strconv.Atoi(state["counter"])
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, acknowledged)
	require.True(t, maps.Equal(history{seed: 1}.stateAt(n), state), "not the state after write %d", n)
	require.NoError(t, db.Check())
	require.NoError(t, db.Close())
}
