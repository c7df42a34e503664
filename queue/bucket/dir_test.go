package bucket_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/stretchr/testify/require"
)

var errInjected = errors.New("injected fault")

// putMany puts objects of several pages until one fails, and returns how many Puts
// succeeded.
func putMany(t *testing.T, fsys vfs.FS) (done int) {
	t.Helper()
	d, err := bucket.OpenDir(fsys, "bucket")
	if err != nil {
		return 0
	}
	for i := range 3 {
		if d.Put(t.Context(), objectName(i), bytes.NewReader(objectContent(i)), int64(len(objectContent(i)))) != nil {
			return done
		}
		done++
	}
	return done
}

func objectName(i int) string { return fmt.Sprintf("%c/object", 'a'+i) }

func objectContent(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 10_000*(i+1)) }

// requireWhole reads the bucket after a crash: the objects whose Put succeeded are there,
// and every object is whole.
func requireWhole(t *testing.T, fsys vfs.FS, done int) {
	t.Helper()
	d, err := bucket.OpenDir(fsys, "bucket")
	require.NoError(t, err)
	for i := range 3 {
		got, err := bucket.ReadAll(t.Context(), d, objectName(i), 1<<20)
		if i >= done && errors.Is(err, bucket.ErrNotExist) {
			require.NoError(t, d.Put(t.Context(), objectName(i), bytes.NewReader(objectContent(i)), int64(len(objectContent(i)))))
			continue
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(objectContent(i), got), "object %d", i)
	}
}

// keeps are the models of a disk after a loss of power.
var keeps = []func(seed uint64) vfs.Keep{
	func(uint64) vfs.Keep { return vfs.KeepSynced },
	vfs.KeepRandom, vfs.KeepTorn, vfs.KeepReordered,
}

// TestDirAfterLossOfPower cuts the power before each operation that writes.
func TestDirAfterLossOfPower(t *testing.T) {
	rng := testseed.Rand(t)
	for k := int64(1); ; k++ {
		mem, reached := vfs.NewMem(), false
		var crashed *vfs.Mem
		fault := vfs.NewFault(mem, func(op vfs.Op) error {
			if op.N >= k {
				if !reached {
					reached, crashed = true, mem.CrashClone(keeps[rng.IntN(len(keeps))](rng.Uint64()))
				}
				return errInjected
			}
			return nil
		})
		done := putMany(t, fault)
		if !reached {
			require.Equal(t, 3, done)
			return
		}
		requireWhole(t, crashed, done)
	}
}

// TestDirWithAFaultAtEachOperation lets one operation fail.
func TestDirWithAFaultAtEachOperation(t *testing.T) {
	for k := int64(1); ; k++ {
		mem, reached := vfs.NewMem(), false
		fault := vfs.NewFault(mem, func(op vfs.Op) error {
			if op.N == k {
				reached = true
				return errInjected
			}
			return nil
		})
		done := putMany(t, fault)
		if !reached {
			require.Equal(t, 3, done)
			return
		}
		requireWhole(t, mem, done)
	}
}

// TestDirExistingObjectIsDurable: a Put that returns ErrExist relies on another writer's
// object, so that object survives a loss of power from then on.
func TestDirExistingObjectIsDurable(t *testing.T) {
	mem := vfs.NewMem()
	setup, err := bucket.OpenDir(mem, "bucket")
	require.NoError(t, err)
	require.NoError(t, setup.Put(t.Context(), "a/other", bytes.NewReader(nil), 0))
	failSync := vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir && op.Name == "bucket/a" {
			return errInjected
		}
		return nil
	})
	first, err := bucket.OpenDir(failSync, "bucket")
	require.NoError(t, err)
	require.ErrorIs(t, first.Put(t.Context(), "a/object", bytes.NewReader([]byte("x")), 1), errInjected)

	require.ErrorIs(t, setup.Put(t.Context(), "a/object", bytes.NewReader([]byte("y")), 1), bucket.ErrExist)
	for seed := range uint64(50) {
		after, err := bucket.OpenDir(mem.CrashClone(vfs.KeepRandom(seed)), "bucket")
		require.NoError(t, err)
		got, err := bucket.ReadAll(t.Context(), after, "a/object", 10)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
	}
}
