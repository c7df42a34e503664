//go:build linux

package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice/sharded/etcdclient"
)

// minReadyTime is the pause after a daemon is ready in a rolling update, in which clients
// learn of it. It is shorter than minReadySeconds of deploy/kubernetes.
const minReadyTime = time.Second

// TestRollingUpdateOfColumns rehearses a rolling update by Kubernetes, of three columns by two
// rows. No call fails, although the client declares no method idempotent, so requests that may
// have been processed are not retried.
func TestRollingUpdateOfColumns(t *testing.T) {
	documents := corpus(t)[:2_000]
	f := newColumnFleet(t, t.TempDir(), 2, documents, false)
	c := f.startCanary(newAccount(), unchanging(expected(documents)), &etcdclient.Options{
		Pool: boxcarrpc.PoolOptions{Methods: map[string]boxcarrpc.Method{}},
	})
	f.rollingUpdate()
	c.stop()
	for name := range c.account.calls() {
		if kind, _, failed := strings.Cut(name, outcomeFailed); failed {
			// A page that is requested when its daemon stops finds no listener.
			require.Contains(t, []string{"http ", "hurried get "}, kind, c.account)
		}
	}
	for _, d := range f.daemons() {
		d.Stop(t)
	}
}

// rollingUpdate restarts all daemons as Kubernetes does: the columns at the same time, and in
// each column one row after the other, from the last to the first.
func (f *columnFleet) rollingUpdate() {
	f.t.Helper()
	var columns sync.WaitGroup
	for _, rows := range f.columns {
		columns.Go(func() {
			for i := len(rows) - 1; i >= 0; i-- {
				f.stop(rows[i])
				f.restart(rows[i])
				time.Sleep(minReadyTime)
			}
		})
	}
	columns.Wait()
}
