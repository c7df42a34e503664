package queue_test

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// losesPages fails the n-th sync of a segment's bytes like a disk that loses the pages.
func losesPages(fsys vfs.FS, n int, evicted bool) vfs.FS {
	return vfs.NewFault(fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncData || op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, segment.OpenSuffix) {
			if n--; n == 0 {
				return &vfs.LostPagesError{Evicted: evicted, Err: syscall.EIO}
			}
		}
		return nil
	})
}

// appendPages appends entries of about a page each, flushes after every 20 except the
// last 20, and seals.
func appendPages(w *queue.Writer, count int) error {
	for n := range count {
		if _, err := w.Append(fmt.Append(nil, n), bytes.Repeat([]byte{byte('a' + n%26)}, 4000)); err != nil {
			return err
		}
		if n%20 == 19 && n < count-1 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Seal()
}

// TestPowerLossAfterFailedSync: the next writer finds blocks, or a footer, that are in
// memory and not on the disk, although a later sync reports no error.
func TestPowerLossAfterFailedSync(t *testing.T) {
	for name, c := range map[string]struct {
		failing int // sync
		evicted bool
		kept    int // entries
	}{
		"of a flush":                            {failing: 2, kept: 40},
		"of a flush, evicted":                   {failing: 2, evicted: true, kept: 20},
		"of the blocks of a seal":               {failing: 3, kept: 60},
		"of the blocks of a seal, evicted":      {failing: 3, evicted: true, kept: 40},
		"of the footer":                         {failing: 4, kept: 60},
		"of the footer, and of what is evicted": {failing: 4, evicted: true, kept: 60},
	} {
		t.Run(name, func(t *testing.T) {
			mem := queuetest.NewMem(t)
			opts := queuetest.Options(losesPages(mem, c.failing, c.evicted))
			opts.BlockBytes = 16 << 10
			w, err := queue.OpenWriter(queuetest.Dir, opts)
			require.NoError(t, err)
			require.ErrorIs(t, appendPages(w, 60), syscall.EIO)
			require.ErrorIs(t, w.Close(), syscall.EIO)

			again, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
			require.NoError(t, err)
			require.NoError(t, again.Close())
			for _, keep := range []vfs.Keep{vfs.KeepAll, vfs.KeepSynced} {
				after := mem.CrashClone(keep)
				queuetest.RequireSound(t, after)
				r := queuetest.OpenReader(t, after)
				require.Len(t, queuetest.Scan(t, r, queue.Position{}), c.kept)
			}
		})
	}
}
