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

// BenchmarkWatch measures the time from adding or removing a server until all watchers
// have reported it. All watchers are in this process, each with its connection.
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

// BenchmarkClaim measures the time from starting servers at once until each has a number.
func BenchmarkClaim(b *testing.B) {
	const connections = 10 // to etcd, with equally many servers each
	for _, servers := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			address := startEtcd(b)
			for b.Loop() {
				var all []*Number
				var registries []*Registry
				for i := range connections {
					r := open(b, address, nil)
					registries = append(registries, r)
					for j := range servers / connections {
						n, err := r.Backend(discovery.Server{Address: fmt.Sprintf("10.0.%d.%d:7070", i, j)})
						require.NoError(b, err)
						all = append(all, n)
					}
				}
				highest := 0
				for _, n := range all {
					number, err := n.Wait(b.Context())
					require.NoError(b, err)
					highest = max(highest, number)
				}
				require.Equal(b, servers-1, highest)
				b.StopTimer()
				for _, r := range registries {
					require.NoError(b, r.Close())
				}
				b.StartTimer()
			}
		})
	}
}
