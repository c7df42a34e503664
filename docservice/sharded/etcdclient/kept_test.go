package etcdclient

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

// reports is a source of the snapshots that a test sends; a nil one makes it fail.
type reports chan *discovery.Snapshot

var errSource = errors.New("etcd is away")

func (r reports) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	for {
		select {
		case s := <-r:
			if s == nil {
				return errSource
			}
			update(*s)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set returns a snapshot of servers with all that a server has.
func set(addresses ...string) *discovery.Snapshot {
	s := &discovery.Snapshot{Self: -1}
	for i, address := range addresses {
		s.Servers = append(s.Servers, discovery.Server{Number: 2 * i, Address: address, Weight: 0.5 + float64(i), Zone: "z-1"})
		s.Numbers = 2*i + 1
	}
	return s
}

// The servers of the file are reported once, and only if etcd has reported none for etcdWait.
func TestKeptServers(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		file := serversFile(t.TempDir(), "a")
		watch := func(steps func(source reports, reported chan discovery.Snapshot, failed chan error)) {
			ctx, cancel := context.WithCancel(t.Context())
			source, reported, failed := make(reports), make(chan discovery.Snapshot, 10), make(chan error, 10)
			k := &kept{fs: vfs.OS, source: source, file: file, log: slog.New(slog.DiscardHandler)}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					failed <- k.Watch(ctx, func(s discovery.Snapshot) { reported <- s })
				}
			}()
			steps(source, reported, failed)
			synctest.Wait()
			require.Empty(t, reported)
			cancel()
			<-done
		}
		two, three := set("a:1", "b:1"), set("a:1", "b:1", "c:1")
		watch(func(source reports, reported chan discovery.Snapshot, _ chan error) {
			time.Sleep(time.Hour) // there is no file
			synctest.Wait()
			require.Empty(t, reported)
			for _, s := range []*discovery.Snapshot{set(), two, two, set()} {
				source <- s
				require.Equal(t, *s, <-reported)
			}
		})
		watch(func(source reports, reported chan discovery.Snapshot, failed chan error) {
			time.Sleep(etcdWait - 1)
			synctest.Wait()
			require.Empty(t, reported)
			source <- nil
			require.ErrorIs(t, <-failed, errSource)
			time.Sleep(etcdWait)
			require.Equal(t, *two, <-reported, "an empty set is not kept")
			source <- nil
			require.ErrorIs(t, <-failed, errSource)
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Empty(t, reported)
			source <- three
			require.Equal(t, *three, <-reported)
		})
		watch(func(source reports, reported chan discovery.Snapshot, _ chan error) {
			source <- set()
			require.Equal(t, *set(), <-reported)
			time.Sleep(time.Hour)
		})
		watch(func(_ reports, reported chan discovery.Snapshot, _ chan error) { require.Equal(t, *three, <-reported) })
		require.NoError(t, os.WriteFile(file, []byte("a:1 number=x"), 0o600))
		watch(func(reports, chan discovery.Snapshot, chan error) { time.Sleep(time.Hour) })
	})
}

// lateSource is a source that fails when the servers of the file are due.
type lateSource struct{}

func (lateSource) Watch(context.Context, func(discovery.Snapshot)) error {
	time.Sleep(etcdWait)
	return errSource
}

// after counts the records of a log after a time.
type after struct {
	slog.Handler
	returned, late atomic.Bool
}

func (a *after) Enabled(context.Context, slog.Level) bool { return true }

func (a *after) Handle(context.Context, slog.Record) error {
	a.late.Store(a.late.Load() || a.returned.Load())
	return nil
}

// A Watch that returns as the servers of the file are due does nothing afterwards.
func TestNothingIsReadAfterWatch(t *testing.T) {
	file := serversFile(t.TempDir(), "a")
	(&kept{fs: vfs.OS, file: file, log: slog.New(slog.DiscardHandler)}).keep(*set("a:1"))
	for range 200 {
		virtualtime.Test(t, func(t *testing.T) {
			log := &after{Handler: slog.DiscardHandler}
			k := &kept{fs: vfs.OS, source: lateSource{}, file: file, log: slog.New(log)}
			require.ErrorIs(t, k.Watch(t.Context(), func(discovery.Snapshot) {}), errSource)
			log.returned.Store(true)
			synctest.Wait()
			require.False(t, log.late.Load(), "the file was read")
		})
	}
}

// A flipped bit in the file of the last servers gives an error or the same servers. A file of an earlier
// build is read.
func TestDamagedServers(t *testing.T) {
	file := serversFile(t.TempDir(), "a")
	(&kept{fs: vfs.OS, file: file, log: slog.New(slog.DiscardHandler)}).keep(*set("a:1", "b:2"))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	want, err := serversOf(content)
	require.NoError(t, err)
	require.Len(t, want.Servers, 2)
	lines := bytes.SplitAfter(content, []byte("\n"))
	earlier, err := serversOf(bytes.Join(lines[:3], nil))
	require.NoError(t, err)
	require.Equal(t, want, earlier)
	for bit := range 8 * len(content) {
		damaged := bytes.Clone(content)
		damaged[bit/8] ^= 1 << (bit % 8)
		if got, err := serversOf(damaged); err == nil {
			require.Equal(t, want, got, "bit %d", bit)
		}
	}
}
