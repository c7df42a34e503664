package etcdmap

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement"
	"docstore/internal/etcdtest"
)

// After a loss of etcd a process with the latest map restores it; others wait.
func TestEnsure(t *testing.T) {
	server := etcdtest.Start(t)
	file := filepath.Join(t.TempDir(), "map")
	s := open(t, server, &Options{File: file})
	first := func(context.Context) (*placement.Map, error) { return newMap("g1", 2), nil }
	failed := func(context.Context) (*placement.Map, error) { return nil, errors.New("nothing is announced") }
	require.ErrorContains(t, s.Ensure(soon(t), failed), "announced")
	require.NoError(t, s.Ensure(soon(t), first))
	require.NoError(t, s.Ensure(soon(t), failed), "it exists")
	exists, err := s.Exists(soon(t))
	require.NoError(t, err)
	require.True(t, exists)
	stop := place(s, "placer")
	want(t, s, "a", "a")
	live := s.Report(state("a", 0))
	m := waitMap(t, s, func(m *placement.Map) bool { return m.Shards[0].Column == "a" })
	stop()
	require.NoError(t, live.Close())

	server.Lose(t)
	fresh := open(t, server, nil)
	one := state("a", 0)
	one.Epoch = m.Epoch
	reporter := fresh.Report(one)
	defer func() { require.NoError(t, reporter.Close()) }()
	require.Eventually(t, func() bool {
		states, err := fresh.States(soon(t))
		return err == nil && len(states) == 1
	}, patience, 5*time.Millisecond)
	require.ErrorContains(t, fresh.Ensure(soon(t), first), "has to restore it")
	require.NoError(t, s.Ensure(soon(t), failed))
	restored := waitMap(t, fresh, func(*placement.Map) bool { return true })
	require.Equal(t, m.Epoch+1, restored.Epoch)
	require.Equal(t, m.Shards, restored.Shards)
}

func TestExclusive(t *testing.T) {
	server := etcdtest.Start(t)
	var inside, calls atomic.Int32
	var running sync.WaitGroup
	for range 4 {
		s := open(t, server, nil)
		running.Go(func() {
			err := s.Exclusive(soon(t), func(context.Context) error {
				if inside.Add(1) != 1 {
					t.Error("two at once")
				}
				calls.Add(1)
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	require.EqualValues(t, 4, calls.Load())
}
