//go:build linux

package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
)

// BenchmarkWatch is one server that comes or goes, until all watchers have told.
// All of them are in this process, on connections of their own.
func BenchmarkWatch(b *testing.B) {
	for _, x := range []struct{ watchers, keys int }{{1, 1000}, {1, 10_000}, {100, 1000}, {100, 10_000}, {500, 1000}} {
		b.Run(fmt.Sprintf("watchers=%d/keys=%d", x.watchers, x.keys), func(b *testing.B) {
			address := startEtcd(b)
			r := open(b, address, nil)
			put := func(n int) {
				_, err := clientOf(b, r).Put(b.Context(), fmt.Sprint(r.entries(backends), n), entry{Address: fmt.Sprintf("10.0.0.%d:7070", n)}.encode())
				require.NoError(b, err)
			}
			for n := range x.keys {
				put(n)
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var told, running sync.WaitGroup
			told.Add(x.watchers)
			for range x.watchers {
				own := open(b, address, nil)
				running.Go(func() { _ = own.Source(nil).Watch(ctx, func(discovery.Snapshot) { told.Done() }) })
			}
			told.Wait()
			for i := 0; b.Loop(); i++ {
				told.Add(x.watchers)
				if i%2 == 0 {
					put(x.keys)
				} else {
					_, err := clientOf(b, r).Delete(b.Context(), fmt.Sprint(r.entries(backends), x.keys))
					require.NoError(b, err)
				}
				told.Wait()
			}
			cancel()
			running.Wait()
		})
	}
}
