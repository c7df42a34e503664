package wal

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

func TestAppendAndReplay(t *testing.T) {
	for _, sizes := range [][]int{
		{},
		{0},
		{1, 0, 2, 100},
		{gatherBytes - recordHeaderBytes - 1, gatherBytes - recordHeaderBytes, gatherBytes - recordHeaderBytes + 1},
		{3 * gatherBytes, 5, windowBytes, windowBytes + 1, 3 * windowBytes},
	} {
		t.Run(fmt.Sprint("sizes=", sizes), func(t *testing.T) {
			fs := vfs.NewMem()
			w, err := Create("1.wal", 42, &Options{FS: fs, Capacity: 4 << 20})
			require.NoError(t, err)
			var want []record
			for i, size := range sizes {
				r := makeRecord(uint64(10*i+1), size)
				require.True(t, w.Fits(size))
				require.NoError(t, w.Append(r.sequence, r.payload))
				want = append(want, r)
			}
			check := func() Result {
				got, result, err := replayAll(fs, "1.wal")
				require.NoError(t, err)
				require.Equal(t, len(want), len(got))
				requirePrefix(t, want, got)
				assert.EqualValues(t, 42, result.Number)
				assert.Equal(t, len(want), result.Records)
				if len(want) > 0 {
					assert.Equal(t, want[0].sequence, result.First)
					assert.Equal(t, want[len(want)-1].sequence, result.Last)
				}
				assert.Equal(t, w.Size(), result.ValidBytes)
				assert.False(t, result.Torn)
				return result
			}
			assert.Zero(t, check().Synced, "never synced")

			size := w.Size()
			require.NoError(t, w.Sync())
			assert.Equal(t, size, check().Synced)
			size = w.Size()
			require.NoError(t, w.Sync())
			assert.Equal(t, size, w.Size(), "a Sync with nothing new writes no mark")

			require.NoError(t, w.Close())
			info, err := fs.Stat("1.wal")
			require.NoError(t, err)
			assert.Equal(t, w.Size(), info.Size, "Close cuts the file")
			check()
		})
	}
}

func TestAppendConcatenatesParts(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: fs})
	require.NoError(t, err)
	big := makeRecord(1, gatherBytes).payload
	require.NoError(t, w.Append(1, []byte("a"), nil, []byte("bc"), []byte("d")))
	require.NoError(t, w.Append(2))
	require.NoError(t, w.Append(3, []byte("a"), big, []byte("z"), big))
	require.NoError(t, w.Close())
	got, _, err := replayAll(fs, "1.wal")
	require.NoError(t, err)
	requirePrefix(t, []record{
		{1, []byte("abcd")},
		{2, nil},
		{3, bytes.Join([][]byte{[]byte("a"), big, []byte("z"), big}, nil)},
	}, got)
	require.Len(t, got, 3)
}

func TestAppendAllocatesNothing(t *testing.T) {
	for _, size := range []int{100, 2 * gatherBytes} {
		w, err := Create(filepath.Join(t.TempDir(), "1.wal"), 1, &Options{Capacity: 64 << 20})
		require.NoError(t, err)
		value := make([]byte, size)
		sequence := uint64(0)
		allocations := testing.AllocsPerRun(100, func() {
			var key [8]byte // stays on the stack
			sequence++
			if err := w.Append(sequence, key[:], value); err != nil {
				t.Fatal(err)
			}
		})
		assert.Zero(t, allocations, "payload of %d bytes", size)
		require.NoError(t, w.Close())
	}
}

func TestSequenceMustRise(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: fs})
	require.NoError(t, err)
	assert.ErrorIs(t, w.Append(0), ErrSequence)
	require.NoError(t, w.Append(5))
	size := w.Size()
	assert.ErrorIs(t, w.Append(5), ErrSequence)
	assert.ErrorIs(t, w.Append(4), ErrSequence)
	assert.Equal(t, size, w.Size())
	require.NoError(t, w.Append(1<<64-1))
	assert.ErrorIs(t, w.Append(0), ErrSequence)
}

func TestPayloadLimit(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: fs})
	require.NoError(t, err)
	parts := make([][]byte, 1024)
	for i := range parts {
		parts[i] = make([]byte, MaxPayloadBytes/len(parts))
	}
	assert.ErrorIs(t, w.Append(1, parts...), ErrFull, "the limit itself is allowed")
	parts[0] = make([]byte, len(parts[0])+1)
	assert.ErrorIs(t, w.Append(1, parts...), ErrTooLarge)
	require.NoError(t, w.Append(1, []byte("the log remains usable")))
}

// TestCapacity: a log with the capacity for one record accepts it and all marks of
// concurrent and later Syncs.
func TestCapacity(t *testing.T) {
	for _, size := range []int{0, 1, 100, 70_000} {
		fs := vfs.NewMem()
		_, err := Create("0.wal", 1, &Options{FS: fs, Capacity: CapacityFor(0) - 1})
		require.Error(t, err)
		_, err = fs.Stat("0.wal")
		require.Error(t, err, "nothing is left behind")

		w, err := Create("1.wal", 1, &Options{FS: fs, Capacity: CapacityFor(size)})
		require.NoError(t, err)
		require.False(t, w.Fits(size+1))
		require.ErrorIs(t, w.Append(1, make([]byte, size+1)), ErrFull)
		require.True(t, w.Fits(size))
		require.NoError(t, w.Append(1, make([]byte, size)))
		require.ErrorIs(t, w.Append(2), ErrFull)
		for range 3 {
			require.NoError(t, w.Sync())
		}
		require.NoError(t, w.Close())
		_, result, err := replayAll(fs, "1.wal")
		require.NoError(t, err)
		require.Equal(t, 1, result.Records)
		require.EqualValues(t, headerBytes+recordHeaderBytes+size, result.Synced)
	}
}

// syncHook is a file system that calls before ahead of each Sync of an append map.
type syncHook struct {
	vfs.FS
	before func()
}

type syncHookMap struct {
	vfs.AppendMap
	before func()
}

func (h syncHook) CreateAppendMap(name string, capacity int64) (vfs.AppendMap, error) {
	m, err := h.FS.CreateAppendMap(name, capacity)
	return syncHookMap{m, h.before}, err
}

func (m syncHookMap) Sync(through int64) error {
	m.before()
	return m.AppendMap.Sync(through)
}

// TestAppendDuringSync: the mark of a Sync does not cover records appended while it
// runs, and these records leave the space reserved for marks.
func TestAppendDuringSync(t *testing.T) {
	mem := vfs.NewMem()
	var w *Writer
	sequence := uint64(0)
	fill := func() {
		for {
			err := w.Append(sequence+1, make([]byte, 10))
			if errors.Is(err, ErrFull) {
				return
			}
			require.NoError(t, err)
			sequence++
		}
	}
	before := func() {}
	w, err := Create("1.wal", 1, &Options{FS: syncHook{mem, func() { before() }}, Capacity: 1000})
	require.NoError(t, err)
	sequence++
	require.NoError(t, w.Append(sequence, []byte("before")))
	size := w.Size()
	before = fill
	require.NoError(t, w.Sync())
	_, result, err := replayAll(mem, "1.wal")
	require.NoError(t, err)
	require.Equal(t, size, result.Synced)
	require.EqualValues(t, sequence, result.Last)
	require.Greater(t, sequence, uint64(2))

	through := w.Size()
	require.NoError(t, w.Sync())
	_, result, err = replayAll(mem, "1.wal")
	require.NoError(t, err)
	require.Equal(t, through, result.Synced)
}

func TestCloseIsIdempotentAndFinal(t *testing.T) {
	w, err := Create("1.wal", 1, &Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	require.NoError(t, w.Append(1))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	assert.ErrorIs(t, w.Append(2), ErrClosed)
	assert.ErrorIs(t, w.Sync(), ErrClosed)
}

func TestCreateRefusesExistingFile(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, "1.wal", []byte("something else"))
	_, err := Create("1.wal", 1, &Options{FS: fs})
	require.Error(t, err)
	b, err := vfs.ReadFile(fs, "1.wal")
	require.NoError(t, err)
	require.Equal(t, "something else", string(b))
}

func TestReplayReturnsErrorOfCallback(t *testing.T) {
	f := newFixture(t, 5, 10)
	fs := vfs.NewMem()
	writeFile(t, fs, "1.wal", f.bytes)
	enough := errors.New("enough")
	n := 0
	result, err := Replay("1.wal", &Options{FS: fs}, func(uint64, []byte) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	require.Equal(t, enough, err)
	require.Equal(t, 2, result.Records)
}

func TestReplayMissingLog(t *testing.T) {
	_, _, err := replayAll(vfs.NewMem(), "1.wal")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestReplayDuringSync: a reader that sees a partly written record and after it the
// mark of a later Sync reads the record again.
func TestReplayDuringSync(t *testing.T) {
	mem := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: mem, Capacity: 8 * windowBytes})
	require.NoError(t, err)
	sequence := uint64(0)
	appendSome := func(n int) {
		for range n {
			sequence++
			require.NoError(t, w.Append(sequence, makeRecord(sequence, 1000).payload))
		}
	}
	appendSome(100)
	// The first read returns the header and the first records; later reads belong to a
	// scan or follow one.
	reads := 0
	fs := vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpReadAt {
			if reads++; reads == 2 || reads == 5 {
				appendSome(200)
				require.NoError(t, w.Sync())
			}
		}
		return nil
	})
	var got []uint64
	result, err := Replay("1.wal", &Options{FS: fs}, func(s uint64, payload []byte) error {
		got = append(got, s)
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, result.Records, 300)
	for i, s := range got {
		require.EqualValues(t, i+1, s)
	}
}

// TestConcurrentUse appends, syncs and replays concurrently. Each Replay returns a
// prefix with at least the records appended before it began.
func TestConcurrentUse(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: fs, Capacity: 1 << 20})
	require.NoError(t, err)
	const n = 2000
	var appended struct {
		sync.Mutex
		last uint64
	}
	var group sync.WaitGroup
	group.Go(func() {
		for s := uint64(1); s <= n; s++ {
			if !assert.NoError(t, w.Append(s, makeRecord(s, int(s%300)).payload)) {
				return
			}
			appended.Lock()
			appended.last = s
			appended.Unlock()
		}
	})
	for range 2 {
		group.Go(func() {
			for range 50 {
				assert.NoError(t, w.Sync())
				w.Size()
				w.Fits(10)
			}
		})
	}
	group.Go(func() {
		for range 20 {
			appended.Lock()
			least := appended.last
			appended.Unlock()
			got, result, err := replayAll(fs, "1.wal")
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, result.Last, least)
			for i, r := range got {
				want := makeRecord(uint64(i+1), (i+1)%300)
				if !assert.Equal(t, want.sequence, r.sequence) || !assert.True(t, bytes.Equal(want.payload, r.payload)) {
					return
				}
			}
		}
	})
	group.Wait()
	require.NoError(t, w.Close())
	_, result, err := replayAll(fs, "1.wal")
	require.NoError(t, err)
	require.Equal(t, n, result.Records)
	require.False(t, result.Torn)
}

// TestSurvivesKill: records whose Append returned survive kill -9 on the real file
// system.
func TestSurvivesKill(t *testing.T) {
	const variable = "WAL_TEST_KILLED_WRITER"
	if name := os.Getenv(variable); name != "" {
		w, err := Create(name, 1, nil)
		for s := uint64(1); err == nil; s++ {
			if err = w.Append(s, makeRecord(s, 100).payload); err == nil {
				_, err = fmt.Println(s)
			}
		}
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "1.wal")
	child := exec.Command(os.Args[0], "-test.run=^TestSurvivesKill$")
	child.Env = append(os.Environ(), variable+"="+name)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	acknowledged := 0
	lines := bufio.NewScanner(out)
	for acknowledged < 1000 && lines.Scan() {
		if n, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil {
			acknowledged = n
		}
	}
	require.NoError(t, child.Process.Kill())
	for lines.Scan() { // output written before the kill
		if n, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil {
			acknowledged = n
		}
	}
	_ = child.Wait()

	got, _, err := replayAll(vfs.OS, name)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(got), acknowledged)
	require.GreaterOrEqual(t, acknowledged, 1000)
	for i, r := range got {
		want := makeRecord(uint64(i+1), 100)
		require.Equal(t, want, r)
	}
}
