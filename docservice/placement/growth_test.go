package placement

import (
	"fmt"
	"hash/maphash"
	"math"
	"testing"
	"time"
)

// BenchmarkGrowth compares Plan with placement by hashing when an eleventh column is added
// to ten: the moved share of the bytes (ideal: 1/11), the heaviest column in relation to the
// mean, and the time that the placement takes. With each of them only the new column
// receives shards, so the moves take as long as it takes to fetch the moved bytes.
//
//	go test ./docservice/placement -run - -bench Growth -benchtime 20x
func BenchmarkGrowth(b *testing.B) {
	const columns = 10
	for _, shards := range []int{64, 256, 1024} {
		for _, placer := range []struct {
			name  string
			place func(seed maphash.Seed, shards, columns int, current []int) []int
		}{
			{"plan", placeByPlan},
			{"rendezvous", hashPlacer(rendezvous)},
			{"jump", hashPlacer(jump)},
			{"multi-probe", hashPlacer(multiProbe)},
		} {
			b.Run(fmt.Sprintf("shards=%d/placer=%s", shards, placer.name), func(b *testing.B) {
				var moved, imbalance float64
				var took time.Duration
				for b.Loop() {
					seed := maphash.MakeSeed()
					before := placer.place(seed, shards, columns, make([]int, shards))
					started := time.Now()
					after := placer.place(seed, shards, columns+1, before)
					took += time.Since(started)
					counts := make([]int, columns+1)
					for i := range after {
						counts[after[i]]++
						if after[i] != before[i] {
							moved++
						}
					}
					for _, n := range counts {
						imbalance = max(imbalance, float64(n)*float64(columns+1)/float64(shards))
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(100*moved/float64(b.N)/float64(shards), "%moved")
				b.ReportMetric(imbalance, "max/mean")
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "plan-ns")
			})
		}
	}
}

// placeByPlan uses Plan from the current assignment.
func placeByPlan(_ maphash.Seed, shards, columns int, current []int) []int {
	name := func(i int) string { return fmt.Sprintf("%03d", i) }
	s := make([]Shard, shards)
	for i := range s {
		s[i] = Shard{Bytes: 1, Column: name(current[i])}
	}
	c := make([]Column, columns)
	byName := make(map[string]int)
	for i := range c {
		c[i] = Column{Name: name(i), Limit: MaxBytes, Weight: 1}
		byName[c[i].Name] = i
	}
	moves, err := Plan(s, c)
	if err != nil {
		panic(err)
	}
	for _, m := range moves {
		s[m.Shard].Column = m.To
	}
	after := make([]int, shards)
	for i := range s {
		after[i] = byName[s[i].Column]
	}
	return after
}

func hashPlacer(place func(seed maphash.Seed, shard, columns int) int) func(maphash.Seed, int, int, []int) []int {
	return func(seed maphash.Seed, shards, columns int, _ []int) []int {
		after := make([]int, shards)
		for i := range after {
			after[i] = place(seed, i, columns)
		}
		return after
	}
}

func hashOf(seed maphash.Seed, shard, column, probe int) uint64 {
	return maphash.Comparable(seed, [3]int{shard, column, probe})
}

// rendezvous is highest random weight hashing (Thaler and Ravishankar, 1998).
func rendezvous(seed maphash.Seed, shard, columns int) int {
	best := 0
	for c := range columns {
		if hashOf(seed, shard, c, 0) > hashOf(seed, shard, best, 0) {
			best = c
		}
	}
	return best
}

// jump is jump consistent hashing (Lamping and Veach, 2014).
func jump(seed maphash.Seed, shard, columns int) int {
	key := hashOf(seed, shard, 0, 0)
	b, j := int64(-1), int64(0)
	for j < int64(columns) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return int(b)
}

// multiProbe is multi-probe consistent hashing (Appleton and O'Reilly, 2015) with 21 probes.
func multiProbe(seed maphash.Seed, shard, columns int) int {
	best, least := 0, uint64(math.MaxUint64)
	for probe := range 21 {
		at := hashOf(seed, shard, -1, probe)
		for c := range columns {
			if distance := hashOf(seed, -1, c, 0) - at; distance < least {
				best, least = c, distance
			}
		}
	}
	return best
}
