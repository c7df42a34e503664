package lsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"docstore/lsm/internal/kv"

	"github.com/stretchr/testify/require"
)

// BenchmarkGetPercentiles reports percentiles of the latency of a lookup, including the
// clock.
func BenchmarkGetPercentiles(b *testing.B) {
	const n = 2_000_000
	db := filled(b, n)
	for _, c := range []struct {
		name  string
		first uint64
	}{{"hit", 0}, {"miss", 1 << 40}} {
		b.Run(c.name, func(b *testing.B) {
			took := make([]time.Duration, b.N)
			r := rand.New(rand.NewPCG(1, 2))
			var key, value []byte
			b.ReportAllocs()
			b.ResetTimer()
			for i := range took {
				key = benchKey(key, c.first+r.Uint64N(n))
				start := time.Now()
				got, err := db.Get(value[:0], key)
				took[i] = time.Since(start)
				if value = got; (err == nil) != (c.first == 0) {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			slices.Sort(took)
			for _, percent := range []float64{50, 99, 99.9} {
				at := min(len(took)-1, int(float64(len(took))*percent/100))
				b.ReportMetric(float64(took[at].Nanoseconds()), fmt.Sprintf("p%g-ns", percent))
			}
		})
	}
}

// BenchmarkFlush sorts a full memtable and writes it to a durable table.
func BenchmarkFlush(b *testing.B) {
	const n = 180_000
	db := open(b, b.TempDir(), nil)
	fill(b, db, n)
	m := db.schedule.current.Load().memtables[0]
	b.ReportAllocs()
	for b.Loop() {
		facts, _, err := db.writeFlush(&flush{memtable: m, number: 1 << 32, units: 1})
		require.NoError(b, err)
		require.EqualValues(b, n, facts.Entries)
		require.NoError(b, db.env.FS.Remove(db.env.path(tableName(facts.Number))))
	}
	reportEntries(b, n)
}

// BenchmarkMerge merges tables of a memtable each into one durable table.
func BenchmarkMerge(b *testing.B) {
	for _, tables := range []int{2, 5} {
		b.Run(fmt.Sprintf("tables=%d", tables), func(b *testing.B) {
			const each = 100_000
			db := open(b, b.TempDir(), &Options{MergeRule: MergeNever})
			for i := range tables * each {
				key := benchKey(nil, uint64(i))
				require.NoError(b, db.Set(key, append(key, make([]byte, benchValueBytes-8)...)))
				if (i+1)%each == 0 {
					require.NoError(b, db.Flush())
				}
			}
			inputs := db.schedule.current.Load().tables
			require.Len(b, inputs, tables)
			b.ReportAllocs()
			for b.Loop() {
				sources, release, err := db.tableSources(inputs)
				require.NoError(b, err)
				source := kv.NewMergedSource(sources, sharedBytes(inputs))
				w, err := db.env.createTable(1<<32, false)
				require.NoError(b, err)
				facts, err := db.writeTable(w, source, 1, uint64(tables*each), true, nil)
				require.NoError(b, err)
				require.EqualValues(b, tables*each, facts.Entries)
				release()
				require.NoError(b, db.env.FS.Remove(db.env.path(tableName(facts.Number))))
			}
			reportEntries(b, tables*each)
		})
	}
}

func reportEntries(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
}

// BenchmarkPlan plans the merges of a store of a million memtables.
func BenchmarkPlan(b *testing.B) {
	var units []uint64
	for i := range 20 {
		units = append(units, 1<<i)
	}
	for b.Loop() {
		if begin, end := planMerge(units, noLimit); begin != end {
			b.Fatal(begin, end)
		}
	}
}
