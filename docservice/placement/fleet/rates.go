package fleet

import (
	"slices"
	"sync"
	"time"
)

// rateWindow is the time over which the rate of a move is computed.
const rateWindow = 10 * time.Second

// Rates computes the rates of moves from consecutive descriptions of a collection. The zero
// value has none. It is safe for concurrent use.
type Rates struct {
	mu    sync.Mutex
	moves map[moveKey][]sample // in the order of time
}

type moveKey struct {
	shard int
	to    string
}

type sample struct {
	at      time.Time
	fetched int64
}

// Add sets the rates of the moves of a description, from those of the last ten seconds. A
// move that was not described before has the rate 0.
func (r *Rates) Add(f *Fleet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.moves
	r.moves = make(map[moveKey][]sample, len(f.Moves))
	for i := range f.Moves {
		m := &f.Moves[i]
		key := moveKey{m.Shard, m.To}
		samples := slices.Concat(before[key], []sample{{f.Time, m.Fetched}})
		for len(samples) > 2 && f.Time.Sub(samples[1].at) >= rateWindow {
			samples = samples[1:]
		}
		first := samples[0]
		if seconds := f.Time.Sub(first.at).Seconds(); seconds > 0 && m.Fetched > first.fetched {
			m.BytesPerSecond = float64(m.Fetched-first.fetched) / seconds
		}
		r.moves[key] = samples
	}
}
