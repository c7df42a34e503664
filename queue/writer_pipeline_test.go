package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate returns a file system whose operations of one kind block until open is called.
func gate(fsys vfs.FS, kind vfs.OpKind) (gated vfs.FS, standing func() int, open func()) {
	opened := make(chan struct{})
	var mu sync.Mutex
	count := 0
	gated = vfs.NewFault(fsys, func(op vfs.Op) error {
		if op.Kind == kind {
			mu.Lock()
			count++
			mu.Unlock()
			<-opened
		}
		return nil
	})
	standing = func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	return gated, standing, func() { close(opened) }
}

// TestAppendDuringFlush: blocks close, segments end and addresses are assigned during a
// sync, and in the end every entry is at its address.
func TestAppendDuringFlush(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := queuetest.NewMem(t)
		gated, standing, open := gate(mem, vfs.OpSyncData)
		opts := queuetest.Options(gated)
		opts.Codec, opts.BlockBytes, opts.SegmentBytes = "s2", 2000, 20_000
		w := queuetest.OpenWriter(t, opts)
		var items []queuetest.Item
		put := func() {
			it := queuetest.Item{ID: fmt.Sprint(len(items)), Document: queuetest.Posting(len(items))}
			it.Put(t, w)
			items = append(items, it)
		}
		put()
		flushed := make(chan error, 1)
		go func() { flushed <- w.Flush() }()
		synctest.Wait()
		require.Equal(t, 1, standing())
		for range 200 {
			put()
		}
		synctest.Wait()
		require.Equal(t, 1, standing(), "bytes were written after a block that is not durable")
		require.Greater(t, items[200].At.Segment, queue.SegmentID(2))
		select {
		case <-flushed:
			t.Fatal("Flush returned before its sync did")
		default:
		}
		open()
		require.NoError(t, <-flushed)
		require.NoError(t, w.Close())
		queuetest.RequireItems(t, queuetest.OpenReader(t, mem), items)
		queuetest.RequireSound(t, mem)
	})
}

// TestPendingBytesAreBounded: an append that is faster than the disk waits.
func TestPendingBytesAreBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		gated, _, open := gate(queuetest.NewMem(t), vfs.OpWrite)
		opts := queuetest.Options(gated)
		opts.BlockBytes = queue.MaxBlockBytes
		w := queuetest.OpenWriter(t, opts)
		document := []byte(strings.Repeat("x", 100_000))
		appended := 0
		finished := make(chan error, 1)
		const count = 3 * queue.MaxPendingBytes / 100_000
		go func() {
			for appended = 0; appended < count; appended++ {
				if _, err := w.Append([]byte("id"), document); err != nil {
					finished <- err
					return
				}
			}
			finished <- w.Close()
		}()
		synctest.Wait()
		bytes := appended * len(document)
		assert.LessOrEqual(t, bytes, queue.MaxPendingBytes+queue.MaxBlockBytes)
		assert.Greater(t, bytes, queue.MaxPendingBytes-2*queue.MaxBlockBytes)
		open()
		require.NoError(t, <-finished)
	})
}

// TestFlushesAreShared: calls of Flush during another one need one more sync together,
// also with concurrent appends.
func TestFlushesAreShared(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		syncs, proceed := 0, make(chan struct{})
		mem := queuetest.NewMem(t)
		w := queuetest.OpenWriter(t, queuetest.Options(vfs.NewFault(mem, func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncData {
				syncs++
				<-proceed
			}
			return nil
		})))
		add := func() {
			_, err := w.Append([]byte("id"), []byte("document"))
			require.NoError(t, err)
		}
		var flushes sync.WaitGroup
		for range 20 {
			add()
			flushes.Go(func() { assert.NoError(t, w.Flush()) })
			synctest.Wait()
		}
		proceed <- struct{}{} // of the first call
		synctest.Wait()
		add()
		proceed <- struct{}{} // of all other calls
		flushes.Wait()
		require.Equal(t, 2, syncs)
		require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}), 20)
		close(proceed)
		require.NoError(t, w.Close())
	})
}

// TestBackgroundWriteFailure: a write fails after Append has returned. Every later call
// returns the error, and calls that wait for pending bytes return.
func TestBackgroundWriteFailure(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		broken := vfs.NewFault(queuetest.NewMem(t), func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, segment.OpenSuffix) {
				return queuetest.ErrCrash
			}
			return nil
		})
		opts := queuetest.Options(broken)
		opts.BlockBytes = 100
		w := queuetest.OpenWriter(t, opts)
		for range 2 {
			_, err := w.Append([]byte("id"), make([]byte, 100))
			require.NoError(t, err)
		}
		synctest.Wait()
		_, err := w.Append([]byte("id"), nil)
		require.ErrorIs(t, err, queuetest.ErrCrash)
		require.ErrorContains(t, err, "flushed entries are safe")
		for _, call := range []func() error{w.Flush, w.Seal, w.Close, w.Close} {
			again := call()
			require.Equal(t, err.Error(), again.Error())
		}
		_, err = w.Append([]byte("id"), nil)
		require.True(t, errors.Is(err, queue.ErrClosed))
	})
}
