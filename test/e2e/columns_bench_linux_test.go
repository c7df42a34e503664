package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/testseed"
)

// BenchmarkColumns reports the median and the 99th percentile of gets and of batches of 50 by
// one caller, from one daemon, three columns of one row, and three columns of three rows. The
// calls to one daemon alternate with those of a pool without a router.
//
//	go test ./test/e2e -run - -bench Columns -benchtime 5000x -count 3
func BenchmarkColumns(b *testing.B) {
	for _, shape := range []struct {
		rows    int
		columns []string
	}{{1, []string{"a"}}, {1, []string{"a", "b", "c"}}, {columnRows, []string{"a", "b", "c"}}} {
		b.Run(fmt.Sprintf("daemons=%d", shape.rows*len(shape.columns)), func(b *testing.B) {
			f := startColumnFleet(b, b.TempDir(), shape.rows, shape.columns, corpus(b)[:2_000], false)
			router, err := etcdclient.Open(f.etcd.Address, collectionName, nil)
			require.NoError(b, err)
			defer router.Close()
			require.NoError(b, router.WaitReady(b.Context()))
			clients := map[string]fetcher{"router": router}
			if len(shape.columns) == 1 {
				pool, err := boxcarrpc.NewPool(discovery.Static(f.columns["a"][0].boxcar), &boxcarrpc.PoolOptions{Methods: docservice.IdempotentMethods()})
				require.NoError(b, err)
				defer pool.Close()
				require.NoError(b, pool.WaitReady(b.Context()))
				clients["direct"] = docservice.NewClient(pool, collectionName)
			}
			for _, n := range []int{1, 50} {
				b.Run(fmt.Sprintf("ids=%d", n), func(b *testing.B) { f.measure(b, clients, n) })
			}
		})
	}
}

// fetcher is implemented by docservice.Client and etcdclient.Client.
type fetcher interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
}

// measure reports the times of calls for n ids: a get, or a batch.
func (f *columnFleet) measure(b *testing.B, clients map[string]fetcher, n int) {
	r, ids, dst := testseed.Rand(b), make([]string, n), []byte(nil)
	times := map[string][]time.Duration{}
	for b.Loop() {
		for name, client := range clients {
			for i := range ids {
				ids[i] = f.documents[r.IntN(len(f.documents))].id
			}
			var err error
			started := time.Now()
			if n == 1 {
				dst, err = client.Get(b.Context(), dst[:0], ids[0])
			} else {
				err = client.GetMany(b.Context(), ids, func(_ int, _ []byte, err error) error { return err })
			}
			times[name] = append(times[name], time.Since(started))
			require.NoError(b, err)
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2]), name+"-ns")
		b.ReportMetric(float64(all[len(all)*99/100]), name+"-p99-ns")
	}
	if direct := times["direct"]; direct != nil {
		b.ReportMetric(float64(times["router"][b.N/2])/float64(direct[b.N/2]), "router/direct")
	}
}
