package lsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"docstore/lsm/internal/memtable"

	"github.com/stretchr/testify/require"
)

// The workload of the article: random keys of 8 bytes, values of 96 bytes.
const benchValueBytes = 96

func benchKey(dst []byte, i uint64) []byte {
	// A bijection, so keys are distinct and unordered.
	i = (i ^ i>>33) * 0xff51afd7ed558ccd
	i = (i ^ i>>33) * 0xc4ceb9fe1a85ec53
	return binary.BigEndian.AppendUint64(dst[:0], i^i>>33)
}

// filled returns a store of n entries with all merges done.
func filled(b *testing.B, n int) *DB {
	db := open(b, b.TempDir(), nil)
	fill(b, db, n)
	require.NoError(b, db.Flush())
	require.NoError(b, db.WaitIdle(b.Context()))
	return db
}

func fill(b *testing.B, db *DB, n int) {
	var key []byte
	value := make([]byte, benchValueBytes)
	for i := range n {
		key = benchKey(key, uint64(i))
		copy(value, key)
		if err := db.Set(key, value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	for _, durability := range []Durability{ProcessCrash, None} {
		b.Run(fmt.Sprintf("durability=%d", durability), func(b *testing.B) {
			db := open(b, b.TempDir(), &Options{Durability: durability})
			value := make([]byte, benchValueBytes)
			var key []byte
			b.ReportAllocs()
			b.SetBytes(8 + benchValueBytes)
			n := uint64(0)
			for b.Loop() {
				key = benchKey(key, n)
				if err := db.Set(key, value); err != nil {
					b.Fatal(err)
				}
				n++
			}
			require.NoError(b, db.WaitIdle(b.Context()))
			require.EqualValues(b, n, db.Stats().Writes.Writes)
			b.ReportMetric(db.Stats().Writes.Amplification(), "amplification")
			b.ReportMetric(db.Stats().Writes.StallTime.Seconds(), "stall-s")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		db := filled(b, n)
		for _, c := range []struct {
			name  string
			first uint64
		}{{"hit", 0}, {"miss", 1 << 40}} {
			b.Run(fmt.Sprintf("entries=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					var key, value []byte
					r := rand.New(rand.NewPCG(rand.Uint64(), 0))
					for p.Next() {
						key = benchKey(key, c.first+r.Uint64N(uint64(n)))
						got, err := db.Get(value[:0], key)
						if value = got; (err == nil) != (c.first == 0) {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkMultiGet looks up the same keys one by one and together; results are per
// key.
func BenchmarkMultiGet(b *testing.B) {
	b.Run("in=table", func(b *testing.B) { benchmarkMultiGet(b, filled(b, 2_000_000), 2_000_000) })
	b.Run("in=memtable", func(b *testing.B) {
		const n = 180_000 // nearly fills one
		db := open(b, b.TempDir(), nil)
		fill(b, db, n)
		require.Empty(b, db.Stats().Tables)
		benchmarkMultiGet(b, db, n)
	})
}

// BenchmarkMiss looks up missing keys. Without filters each lookup searches every
// table, as after a false positive of every filter.
func BenchmarkMiss(b *testing.B) {
	const n, size = 1_000_000, 50
	for _, filters := range []bool{true, false} {
		o := &Options{}
		if !filters {
			o.FilterBytes = -1
		}
		db := open(b, b.TempDir(), o)
		fill(b, db, n)
		require.NoError(b, db.Flush())
		require.NoError(b, db.WaitIdle(b.Context()))
		b.Logf("%d tables", len(db.Stats().Tables))
		r := rand.New(rand.NewPCG(1, 2))
		b.Run(fmt.Sprintf("filters=%v/Get", filters), func(b *testing.B) {
			b.ReportAllocs()
			var key []byte
			for b.Loop() {
				key = benchKey(key, 1<<40+r.Uint64N(n))
				if _, err := db.Get(nil, key); !errors.Is(err, ErrNotFound) {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("filters=%v/MultiGet", filters), func(b *testing.B) {
			b.ReportAllocs()
			keys := make([][]byte, size)
			for looked := 0; looked < b.N; looked += size {
				for i := range keys {
					keys[i] = benchKey(keys[i], 1<<40+r.Uint64N(n))
				}
				err := db.MultiGet(keys, func(_ int, _ []byte, err error) error {
					if errors.Is(err, ErrNotFound) {
						return nil
					}
					return fmt.Errorf("found, or %w", err)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSeek creates an iterator, seeks a random key and reads some entries.
func BenchmarkSeek(b *testing.B) {
	const n = 1_000_000
	db := filled(b, n)
	for _, entries := range []int{1, 50} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			b.ReportAllocs()
			r := rand.New(rand.NewPCG(1, 2))
			var key []byte
			for b.Loop() {
				key = benchKey(key, r.Uint64N(n))
				it := db.NewIter(nil)
				count := 0
				for ok := it.SeekGE(key); ok && count < entries; ok = it.Next() {
					count++
				}
				if err := it.Close(); err != nil || count == 0 {
					b.Fatal(count, err)
				}
			}
		})
	}
}

func benchmarkMultiGet(b *testing.B, db *DB, n uint64) {
	for _, size := range []int{1, 10, 50} {
		keys := make([][]byte, size)
		for _, c := range []struct {
			name string
			get  func(fn func(i int, value []byte, err error) error) error
		}{
			{"Get", func(fn func(i int, value []byte, err error) error) (err error) {
				var value []byte
				for i, key := range keys {
					if value, err = db.Get(value[:0], key); err == nil {
						err = fn(i, value, nil)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}},
			{"MultiGet", func(fn func(i int, value []byte, err error) error) error { return db.MultiGet(keys, fn) }},
		} {
			b.Run(fmt.Sprintf("keys=%d/%s", size, c.name), func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(1, 2))
				for looked := 0; looked < b.N; looked += size {
					for i := range keys {
						keys[i] = benchKey(keys[i], r.Uint64N(n))
					}
					err := c.get(func(i int, value []byte, err error) error {
						if err == nil && !bytes.HasPrefix(value, keys[i]) {
							err = fmt.Errorf("key %x has the value %x", keys[i], value)
						}
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkScan(b *testing.B) {
	const n = 500_000
	db := filled(b, n)
	for _, forward := range []bool{true, false} {
		b.Run(fmt.Sprintf("forward=%v", forward), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				it := db.NewIter(nil)
				move, step := it.First, it.Next
				if !forward {
					move, step = it.Last, it.Prev
				}
				count := 0
				for ok := move(); ok; ok = step() {
					count++
				}
				if err := it.Err(); err != nil || count != n {
					b.Fatal(count, err)
				}
				_ = it.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
		})
	}
}

func BenchmarkMemtable(b *testing.B) {
	m := memtable.New(nil, 64<<20, 0, memtable.Account{})
	var batch Batch
	var key []byte
	value := make([]byte, benchValueBytes)
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		if n%200_000 == 0 { // as many as fill one
			m = memtable.New(nil, 64<<20, 0, memtable.Account{})
		}
		n++
		key = benchKey(key, n)
		batch.Reset()
		_ = batch.Set(key, value)
		if err := applyBatch(m, batch.encoded(), n); err != nil {
			b.Fatal(err)
		}
	}
}
