package vfs

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

var errInjected = errors.New("injected")

// failing returns a hook that makes all operations of a kind fail with err.
func failing(kind OpKind, err error) func(Op) error {
	return func(op Op) error {
		if op.Kind == kind {
			return err
		}
		return nil
	}
}

func TestFaultOfEveryKind(t *testing.T) {
	file := func(call func(f File) error) func(r testFS) error {
		return func(r testFS) error {
			f, err := r.OpenAppend(r.path("old"))
			if err != nil {
				return err
			}
			return errors.Join(call(f), f.Close())
		}
	}
	appendMap := func(call func(m AppendMap) error) func(r testFS) error {
		return func(r testFS) error {
			m, err := r.CreateAppendMap(r.path("log"), 10)
			if err != nil {
				return err
			}
			return errors.Join(call(m), m.Close())
		}
	}
	for kind, call := range map[OpKind]func(r testFS) error{
		OpCreate:          func(r testFS) error { _, err := r.Create(r.path("new")); return err },
		OpOpen:            func(r testFS) error { _, err := r.Open(r.path("old")); return err },
		OpOpenAppend:      func(r testFS) error { _, err := r.OpenAppend(r.path("old")); return err },
		OpCreateAppendMap: func(r testFS) error { _, err := r.CreateAppendMap(r.path("log"), 1); return err },
		OpRemove:          func(r testFS) error { return r.Remove(r.path("old")) },
		OpRemoveAll:       func(r testFS) error { return r.RemoveAll(r.path("old")) },
		OpRename:          func(r testFS) error { return r.Rename(r.path("old"), r.path("new")) },
		OpLink:            func(r testFS) error { return r.Link(r.path("old"), r.path("new")) },
		OpMkdirAll:        func(r testFS) error { return r.MkdirAll(r.path("new")) },
		OpList:            func(r testFS) error { _, err := r.List(r.dir); return err },
		OpStat:            func(r testFS) error { _, err := r.Stat(r.dir); return err },
		OpSyncDir:         func(r testFS) error { return r.SyncDir(r.dir) },
		OpLock:            func(r testFS) error { _, err := r.Lock(r.path("old"), "me"); return err },
		OpFree:            func(r testFS) error { _, err := r.Free(r.dir); return err },
		OpReadAt:          file(func(f File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }),
		OpWrite:           file(func(f File) error { _, err := f.Write([]byte("new")); return err }),
		OpWriteAt:         file(func(f File) error { _, err := f.WriteAt([]byte("new"), 0); return err }),
		OpSync:            file(File.Sync),
		OpSyncData:        file(File.SyncData),
		OpTruncate:        file(func(f File) error { return f.Truncate(0) }),
		OpMap:             file(func(f File) error { _, err := f.Map(1); return err }),
		OpClose:           file(func(File) error { return nil }),
		OpAppend:          appendMap(func(m AppendMap) error { _, err := m.Append([]byte("new")); return err }),
		OpAppendSync:      appendMap(func(m AppendMap) error { return m.Sync(0) }),
		OpAppendClose:     appendMap(func(AppendMap) error { return nil }),
	} {
		t.Run(kind.String(), func(t *testing.T) {
			mem, r := startedMem(t)
			r.FS = NewFault(mem, failing(kind, errInjected))
			assert.ErrorIs(t, call(r), errInjected)
			assert.Equal(t, "old", tree(t, mem, "/d")["old"], "the operation was executed")
			assert.NotContains(t, tree(t, mem, "/d"), "new")
			mem, r = startedMem(t)
			r.FS = NewFault(mem, allow)
			assert.NoError(t, call(r))
		})
	}
	assert.Equal(t, "OpKind(200)", OpKind(200).String())
}

func TestFaultAnnouncesOperations(t *testing.T) {
	mem, r := startedMem(t)
	var ops []Op
	fault := NewFault(mem, func(op Op) error {
		ops = append(ops, op)
		return nil
	})
	r.FS = fault
	require.NoError(t, WriteFileAtomic(r, "/d/a", []byte("content")))
	assert.Equal(t, []Op{
		{Kind: OpRemove, Name: "/d/a.tmp", N: 1},
		{Kind: OpCreate, Name: "/d/a.tmp", N: 2},
		{Kind: OpWrite, Name: "/d/a.tmp", N: 3, Bytes: 7},
		{Kind: OpSync, Name: "/d/a.tmp", N: 4},
		{Kind: OpClose, Name: "/d/a.tmp", N: 5},
		{Kind: OpRename, Name: "/d/a", N: 6},
		{Kind: OpSyncDir, Name: "/d", N: 7},
	}, ops)
	assert.EqualValues(t, 7, fault.Ops())
}

func TestFaultOfSyncIsFinal(t *testing.T) {
	mem, r := startedMem(t)
	failed := false
	r.FS = NewFault(mem, func(op Op) error {
		if failed || op.Kind != OpSync && op.Kind != OpAppendSync {
			return nil
		}
		failed = true // once: a second sync would succeed
		return errInjected
	})
	f := r.openAppend(t, "old")
	_, err := f.Write([]byte(" and new"))
	require.NoError(t, err)
	assert.ErrorIs(t, f.Sync(), errInjected)
	assert.ErrorIs(t, f.Sync(), errInjected)
	assert.ErrorIs(t, f.SyncData(), errInjected)
	assert.ErrorIs(t, f.Truncate(0), errInjected)
	_, err = f.Write([]byte("more"))
	assert.ErrorIs(t, err, errInjected)
	assert.Equal(t, "old", tree(t, mem.CrashClone(KeepSynced), "/d")["old"])

	failed = false
	m, err := r.CreateAppendMap(r.path("log"), 10)
	require.NoError(t, err)
	_, err = m.Append([]byte("abc"))
	require.NoError(t, err)
	assert.ErrorIs(t, m.Sync(3), errInjected)
	assert.ErrorIs(t, m.Sync(3), errInjected)
	_, err = m.Append([]byte("def"))
	assert.ErrorIs(t, err, errInjected)
	require.NoError(t, m.Close())
}

func TestShortWrite(t *testing.T) {
	mem, r := startedMem(t)
	r.FS = NewFault(mem, failing(OpWrite, &ShortError{Bytes: 2, Err: ErrNoSpace}))
	f := r.openAppend(t, "old")
	n, err := f.Write([]byte("1234"))
	assert.Equal(t, 2, n)
	assert.ErrorIs(t, err, ErrNoSpace)
	assert.Equal(t, "old12", tree(t, mem, "/d")["old"])
	n, err = f.Write([]byte("3")) // shorter than the short write
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, ErrNoSpace)

	r.FS = NewFault(mem, failing(OpAppend, &ShortError{Bytes: 2, Err: errInjected}))
	m, err := r.CreateAppendMap(r.path("log"), 4)
	require.NoError(t, err)
	_, err = m.Append([]byte("1234"))
	assert.ErrorIs(t, err, errInjected)
	assert.Equal(t, "12\x00\x00", tree(t, mem, "/d")["log"])
	_, err = m.Append([]byte("3"))
	assert.ErrorIs(t, err, errInjected, "the first failure is final")
}

func TestShortRead(t *testing.T) {
	_, r := startedMem(t)
	r.FS = NewFault(r.FS, failing(OpReadAt, &ShortError{Bytes: 2, Err: errInjected}))
	f, err := r.Open(r.path("old"))
	require.NoError(t, err)
	b := []byte("....")
	n, err := f.ReadAt(b, 1)
	assert.Equal(t, 2, n)
	assert.ErrorIs(t, err, errInjected)
	assert.Equal(t, "ld..", string(b))
	require.NoError(t, f.Close())
}

func TestAppendMapOfDeadProcessKeepsItsLength(t *testing.T) {
	mem, r := startedMem(t)
	r.FS = NewFault(mem, failing(OpAppendClose, errInjected))
	m, err := r.CreateAppendMap(r.path("log"), 4)
	require.NoError(t, err)
	_, err = m.Append([]byte("12"))
	require.NoError(t, err)
	assert.ErrorIs(t, m.Close(), errInjected)
	assert.Equal(t, "12\x00\x00", tree(t, mem, "/d")["log"])
}

// TestAtomicFileCrashAtEveryOperation: after a crash at any operation the file has its
// old or new contents, and the new ones if the call returned without an error.
func TestAtomicFileCrashAtEveryOperation(t *testing.T) {
	seeds := testseed.Rand(t)
	for _, once := range []bool{false, true} { // a crash, a transient fault
		for k := int64(1); ; k++ {
			mem, r := startedMem(t)
			fault := NewFault(mem, func(op Op) error {
				if op.N == k || op.N > k && !once {
					return errInjected
				}
				return nil
			})
			err := WriteFileAtomic(fault, r.path("old"), []byte("new"))
			for range 50 {
				clone := mem.CrashClone(KeepRandom(seeds.Uint64()))
				content := tree(t, clone, "/d")["old"]
				if err == nil {
					require.Equal(t, "new", content, fmt.Sprintf("fault at %d", k))
				}
				require.Contains(t, []string{"old", "new"}, content, fmt.Sprintf("fault at %d", k))
				require.NoError(t, WriteFileAtomic(clone, r.path("old"), []byte("newer")))
			}
			if once {
				require.NotContains(t, tree(t, mem, "/d"), "old.tmp")
			}
			if fault.Ops() < k {
				require.NoError(t, err)
				break
			}
			require.Less(t, k, int64(math.MaxInt16))
		}
	}
}
