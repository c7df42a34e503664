package bloom

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	bloomv3 "github.com/bits-and-blooms/bloom/v3"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

var (
	sinkHash Hash
	sinkBool bool
)

func BenchmarkHashKey(b *testing.B) {
	for _, length := range []int{8, 16, 40, 200} {
		key := make([]byte, length)
		b.Run(fmt.Sprintf("hash=own/key=%d", length), func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				binary.LittleEndian.PutUint64(key, i)
				sinkHash = HashKey(key)
			}
		})
		b.Run(fmt.Sprintf("hash=library/key=%d", length), func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				binary.LittleEndian.PutUint64(key, i)
				sinkBool = bloomv3.Locations(key, 6)[0] == 0
			}
		})
	}
}

// BenchmarkPage probes full pages of 4 KiB with present and absent keys, with our code
// and with the library.
func BenchmarkPage(b *testing.B) {
	random := testseed.Rand(b)
	filter := NewBuilder(nil)
	keys := randomKeys(random, filter.perPage)
	page := load(b, build(nil, keys)).pages[0].Load()
	library := bloomv3.From(page.words, uint(filter.hashes))
	k := uint64(filter.hashes)
	for _, hit := range []bool{true, false} {
		probes := keys
		if !hit {
			probes = randomKeys(random, 4096)
		}
		hashes := make([]Hash, 4096)
		for i := range hashes {
			hashes[i] = HashKey(probes[i%len(probes)])
		}
		b.Run(fmt.Sprintf("probe=own/hit=%t", hit), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sinkBool = page.mayContain(hashes[i%len(hashes)], k)
			}
		})
		b.Run(fmt.Sprintf("probe=library/hit=%t", hit), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var at [maxHashes]uint64
				h := hashes[i%len(hashes)]
				for j := range k {
					at[j] = h.location(j)
				}
				sinkBool = library.TestLocations(at[:k])
			}
		})
	}
}

// BenchmarkMayContain hashes keys and probes a filter of a million keys.
func BenchmarkMayContain(b *testing.B) {
	random := testseed.Rand(b)
	keys := randomKeys(random, 1_000_000)
	filter := load(b, build(nil, keys))
	absent := randomKeys(random, 1<<16)
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	random.Shuffle(len(absent), func(i, j int) { absent[i], absent[j] = absent[j], absent[i] })
	for _, c := range []struct {
		name string
		keys [][]byte
	}{{"hit=true", keys}, {"hit=false", absent}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key := c.keys[i%len(c.keys)]
				sinkBool = filter.MayContain(HashKey(key), key)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				answer := false
				for i := 0; pb.Next(); i++ {
					key := c.keys[i%len(c.keys)]
					answer = answer != filter.MayContain(HashKey(key), key)
				}
				_ = answer
			})
		})
	}
	for _, key := range keys {
		require.True(b, mayContain(filter, key))
	}
}

// BenchmarkBuilder builds a filter of a million keys; an op is a key.
func BenchmarkBuilder(b *testing.B) {
	keys := randomKeys(testseed.Rand(b), 1_000_000)
	builder := NewBuilder(nil)
	var dst []byte
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if i == len(keys) {
			dst, i = builder.Finish(dst[:0]), 0
		}
		builder.Add(keys[i])
		i++
	}
}

// BenchmarkMissed reports false "maybe" answers.
func BenchmarkMissed(b *testing.B) {
	keys := randomKeys(testseed.Rand(b), 1_000_000)
	filter := open(b, build(nil, keys))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		filter.Missed(keys[i*31%(1<<16)])
	}
}

// BenchmarkTick is a pass over tables of a hundred million keys with lookups of every
// page, half of the pages in memory and nothing to exchange.
func BenchmarkTick(b *testing.B) {
	const tables = 100
	random := testseed.Rand(b)
	keys := randomKeys(random, 1_000_000)
	data := build(nil, keys)
	m := NewManager(tables * int64(len(data)) / 2)
	var filters []*Filter
	for range tables {
		filters = append(filters, open(b, data))
	}
	m.Track(filters...)
	clock := int64(0)
	tick := func() bool {
		for _, f := range filters {
			for i := range f.samples {
				f.samples[i].no.Add(random.Uint32N(10))
			}
		}
		clock++
		more, err := m.Tick(time.Unix(clock, 0))
		require.NoError(b, err)
		return more
	}
	for tick() {
	}
	b.ReportAllocs()
	for b.Loop() {
		tick()
	}
	b.ReportMetric(float64(m.Stats().Pages), "pages")
}

// BenchmarkUpdate replaces ten million keys, all of whose pages are in memory, after a
// merge with a million keys.
func BenchmarkUpdate(b *testing.B) {
	random := testseed.Rand(b)
	keys := randomKeys(random, 11_000_000)
	var small [][]byte
	for i := 0; i < len(keys); i += 11 {
		small = append(small, keys[i])
	}
	inputs, output := [][]byte{build(nil, small), build(nil, keys)}, build(nil, keys)
	m := NewManager(1 << 40)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		before := []*Filter{open(b, inputs[0]), open(b, inputs[1])}
		require.NoError(b, m.Update(before...))
		for _, key := range small[:100_000] {
			lookUp(key, nil, before...)
		}
		after := open(b, output)
		b.StartTimer()
		require.NoError(b, m.Update(after))
		b.StopTimer()
		require.Equal(b, after.Stats().Pages, after.Stats().ResidentPages)
		b.ReportMetric(float64(after.Stats().Pages), "pages")
		b.StartTimer()
	}
}
