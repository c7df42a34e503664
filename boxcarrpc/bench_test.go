package boxcarrpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"docstore/boxcarrpc/core"
)

// BenchmarkEcho measures calls of 16 bytes that return 1 KB, client and server in one
// process over loopback.
func BenchmarkEcho(b *testing.B) {
	s := serve(b, benchHandler, nil)
	for _, lanes := range []int{64, 1} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("LanesPerConn=%d/callers=%d", lanes, callers), func(b *testing.B) {
				p := newPool(b, &PoolOptions{Size: callers, LanesPerConn: lanes}, s.address)
				full(b, p)
				ctx := b.Context()
				b.ReportAllocs()
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						request, dst := make([]byte, 16), make([]byte, 0, 2048)
						for left.Add(-1) >= 0 {
							out, err := p.Call(ctx, "m", request, dst)
							if err != nil || len(out) != 1024 {
								b.Errorf("%d bytes, %v", len(out), err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

var benchResponse = make([]byte, 1024)

func benchHandler(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
	return append(dst, benchResponse...), nil
}

// BenchmarkAcquireRelease measures acquiring and releasing the lowest slot by 64
// goroutines, without sending.
func BenchmarkAcquireRelease(b *testing.B) {
	s := serve(b, echo, nil)
	p := newPool(b, &PoolOptions{Size: 64}, s.address)
	full(b, p)
	b.ReportAllocs()
	b.SetParallelism(32) // times at least 2 processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lane, _, _ := p.slots.acquire(p.slots.now(), nil, false)
			if lane == nil {
				continue // more goroutines than slots
			}
			p.slots.release(p.slots.now(), lane, core.Response{Outcome: core.Success, Lowest: 64}, false)
		}
	})
}
