package collection

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/internal/vfs"
	"docstore/queue/codec"
)

// BenchmarkGet measures the work of a daemon for one id without the network: index,
// segment, decoding, response.
func BenchmarkGet(b *testing.B) {
	const documents = 100_000
	f := newFixture(b, vfs.OS, b.TempDir())
	f.putMany("a", documents)
	f.seal()
	c := f.ready()
	service := NewService(c)
	var ids [1 << 10][]byte
	var requests [len(ids)][]byte
	random := rand.New(rand.NewPCG(1, 2))
	for i := range ids {
		id := fmt.Sprintf("a-%d", random.IntN(documents))
		ids[i] = []byte(id)
		requests[i] = wire.AppendID(wire.AppendCollection(nil, "jobs"), id)
	}
	missing := wire.AppendID(wire.AppendCollection(nil, "jobs"), "none")

	b.Run("collection", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for i := range b.N {
			var err error
			if dst, err = c.Get(dst[:0], ids[i%len(ids)]); err != nil {
				b.Fatal(err)
			}
		}
		require.Equal(b, documentOf(string(ids[(b.N-1)%len(ids)])), string(dst))
	})
	b.Run("service", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for i := range b.N {
			var err error
			if dst, err = service.Handle(b.Context(), docservice.MethodGet, requests[i%len(requests)], dst[:0]); err != nil {
				b.Fatal(err)
			}
		}
		require.Contains(b, string(dst), documentOf(string(ids[(b.N-1)%len(ids)])))
	})
	for name, accept := range map[string]codec.Set{"stored": codec.Built(), "plain": 0} {
		b.Run("for=client/"+name, func(b *testing.B) { // with a reservation for the response
			b.ReportAllocs()
			account := budget.New(8<<20).Open(budget.ClientAt(new(net.TCPAddr)), func() {})
			defer account.Close()
			ctx, room := account.NewReservation(b.Context())
			defer room.Release()
			var dst []byte
			for i := range b.N {
				var err error
				if dst, _, err = c.get(ctx, dst[:0], ids[i%len(ids)], accept, nil); err != nil {
					b.Fatal(err)
				}
			}
			require.Contains(b, string(dst), documentOf(string(ids[(b.N-1)%len(ids)])))
		})
	}
	b.Run("missing", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for range b.N {
			var err error
			if dst, err = service.Handle(b.Context(), docservice.MethodGet, missing, dst[:0]); err != nil {
				b.Fatal(err)
			}
		}
		require.Len(b, dst, 2)
	})
	for _, size := range []int{10, 50} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for i := range b.N {
				var err error
				from := i % (len(ids) - size)
				dst, _, err = c.GetMany(dst[:0], ids[from:from+size], docservice.MaxReplyBytes)
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}
