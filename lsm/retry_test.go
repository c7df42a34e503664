package lsm

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

// TestFailedWorkIsRetriedWithBackoff makes flushes or merges fail for an hour: they are
// retried a few times per minute, and writes return an error.
func TestFailedWorkIsRetriedWithBackoff(t *testing.T) {
	for name, failing := range map[string]func(vfs.Op) bool{
		"tables cannot be made":       func(op vfs.Op) bool { return op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix },
		"tables cannot be synced":     func(op vfs.Op) bool { return op.Kind == vfs.OpSync && filepath.Ext(op.Name) == tableSuffix },
		"no manifest can be made":     func(op vfs.Op) bool { return op.Kind == vfs.OpRename },
		"the directory is not synced": func(op vfs.Op) bool { return op.Kind == vfs.OpSyncDir },
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				var armed atomic.Bool
				var failed atomic.Int64
				db, err := Open("db", &Options{MemtableBytes: minMemtableBytes, FS: vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
					if armed.Load() && failing(op) {
						failed.Add(1)
						return syscall.EIO
					}
					return nil
				})})
				require.NoError(t, err)
				armed.Store(true)
				refused := 0
				for i := range 60 * 60 {
					if err := db.Set(fmt.Appendf(nil, "key%d", i), make([]byte, 100)); err != nil {
						require.ErrorIs(t, err, syscall.EIO)
						refused++
					}
					time.Sleep(time.Second)
				}
				require.Positive(t, refused, "no write failed")
				require.ErrorIs(t, db.Stats().Problem, syscall.EIO)
				tries := int64(time.Hour/lastRetry) + 20 // the first ones come sooner
				require.Greater(t, failed.Load(), tries/2, "too few retries")
				require.LessOrEqual(t, failed.Load(), tries)
				armed.Store(false)
				time.Sleep(lastRetry)
				require.NoError(t, db.Set([]byte("key"), nil))
				require.NoError(t, db.Close())
			})
		})
	}
}
