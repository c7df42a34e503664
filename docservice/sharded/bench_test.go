package sharded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"docstore/docservice"
	"docstore/internal/testseed"
)

// documents is implemented by docservice.Client and sharded.Client.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
}

// BenchmarkRouter compares the router with a client of one column that has all shards: the
// medians of gets and of batches of 50, which alternate. With three columns a batch is three
// calls at the same time. Each column has three rows.
//
//	go test ./docservice/sharded -run - -bench Router -benchtime 20000x -count 5
func BenchmarkRouter(b *testing.B) {
	one, three := newCluster(b, 16, 5000), newCluster(b, 16, 5000)
	one.even("a")
	three.even("a", "b", "c")
	for range 2 {
		one.addRow("a")
		for _, column := range []string{"a", "b", "c"} {
			three.addRow(column)
		}
	}
	pool, err := one.pool("a")
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if err := pool.WaitReady(soon(b)); err != nil {
		b.Fatal(err)
	}
	direct := docservice.NewClient(pool, "jobs")
	for _, router := range []struct {
		columns int
		client  documents
	}{{1, one.client()}, {3, three.client()}} {
		for _, ids := range []int{1, 50} {
			b.Run(fmt.Sprintf("columns=%d/ids=%d", router.columns, ids), func(b *testing.B) {
				compare(b, one.ids, ids, direct, router.client)
			})
		}
	}
}

// compare reports the medians of calls of two clients for n ids: a get, or a batch.
func compare(b *testing.B, all []string, n int, direct, router documents) {
	ctx, r, ids, dst := soon(b), testseed.Rand(b), make([]string, n), []byte(nil)
	call := func(client documents) time.Duration {
		for i := range ids {
			ids[i] = all[r.IntN(len(all))]
		}
		var err error
		started := time.Now()
		if n == 1 {
			dst, err = client.Get(ctx, dst[:0], ids[0])
		} else {
			err = client.GetMany(ctx, ids, func(_ int, _ []byte, err error) error { return err })
		}
		took := time.Since(started)
		if err != nil {
			b.Fatal(err)
		}
		return took
	}
	var directly, routed []time.Duration
	for b.Loop() {
		directly = append(directly, call(direct))
		routed = append(routed, call(router))
	}
	slices.Sort(directly)
	slices.Sort(routed)
	x, y := float64(directly[len(directly)/2]), float64(routed[len(routed)/2])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(x, "direct-ns")
	b.ReportMetric(y, "router-ns")
	b.ReportMetric(y/x, "router/direct")
}

// BenchmarkSlowRow reports the percentiles of batches of 50 over three columns of three rows,
// with and without hedging, also while one row takes 100 times as long.
//
//	go test ./docservice/sharded -run - -bench SlowRow -benchtime 2000x
func BenchmarkSlowRow(b *testing.B) {
	const usual, factor, callers = time.Millisecond, 100, 4
	c := newCluster(b, 16, 5000)
	c.even("a", "b", "c")
	var all []*server
	for _, column := range []string{"a", "b", "c"} {
		all = append(all, c.servers[column], c.addRow(column), c.addRow(column))
	}
	for _, s := range all {
		s.delay.Store(int64(usual))
	}
	for _, slow := range []bool{false, true} {
		if slow {
			all[1].delay.Store(int64(factor * usual))
		}
		for _, hedging := range []bool{false, true} {
			b.Run(fmt.Sprintf("slow=%v/hedging=%v", slow, hedging), func(b *testing.B) {
				client := c.client()
				if !hedging {
					client.DisableHedging()
				}
				times := make(chan time.Duration, b.N)
				var left atomic.Int64
				left.Store(int64(b.N))
				var running sync.WaitGroup
				for n := range callers {
					r := rand.New(rand.NewPCG(uint64(n), 1))
					running.Go(func() {
						ids := make([]string, 50)
						for left.Add(-1) >= 0 {
							for i := range ids {
								ids[i] = c.ids[r.IntN(len(c.ids))]
							}
							started := time.Now()
							if err := client.GetMany(soon(b), ids, func(_ int, _ []byte, err error) error { return err }); err != nil {
								b.Error(err)
							}
							times <- time.Since(started)
						}
					})
				}
				running.Wait()
				close(times)
				var sorted []time.Duration
				for took := range times {
					sorted = append(sorted, took)
				}
				slices.Sort(sorted)
				for _, percent := range []int{50, 95, 99} {
					b.ReportMetric(float64(sorted[len(sorted)*percent/100].Microseconds())/1e3, fmt.Sprintf("p%d-ms", percent))
				}
				var calls, hedges uint64
				for _, s := range client.PoolStats() {
					calls, hedges = calls+s.Calls, hedges+s.Hedges
				}
				b.ReportMetric(100*float64(hedges)/float64(calls), "%hedged")
			})
		}
	}
}
