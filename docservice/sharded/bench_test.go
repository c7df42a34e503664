package sharded_test

import (
	"context"
	"testing"

	"docstore/docservice"
	"docstore/internal/testseed"
)

// documents is implemented by docservice.Client and sharded.Client.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
}

// BenchmarkRouter compares the router with a client of one column that has all shards:
// ns/op are those of a get, and of a batch of 50. With three columns a batch is three
// calls.
func BenchmarkRouter(b *testing.B) {
	one, three := newCluster(b, 16, 5000), newCluster(b, 16, 5000)
	one.even("a")
	three.even("a", "b", "c")
	pool, err := one.pool("a")
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if err := pool.WaitReady(soon(b)); err != nil {
		b.Fatal(err)
	}
	for _, client := range []struct {
		name string
		documents
	}{{"direct", docservice.NewClient(pool, "jobs")}, {"columns=1", one.client()}, {"columns=3", three.client()}} {
		r := testseed.Rand(b)
		b.Run("get/"+client.name, func(b *testing.B) {
			ctx, dst := soon(b), []byte(nil)
			b.ReportAllocs()
			for b.Loop() {
				out, err := client.Get(ctx, dst[:0], one.ids[r.IntN(len(one.ids))])
				if err != nil {
					b.Fatal(err)
				}
				dst = out
			}
		})
		b.Run("batch/"+client.name, func(b *testing.B) {
			ctx, ids := soon(b), make([]string, 50)
			b.ReportAllocs()
			for b.Loop() {
				for i := range ids {
					ids[i] = one.ids[r.IntN(len(one.ids))]
				}
				err := client.GetMany(ctx, ids, func(_ int, _ []byte, err error) error { return err })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
