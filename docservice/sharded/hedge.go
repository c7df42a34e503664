package sharded

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
)

const (
	// hedgeEvery is the number of sub-batches that allow one hedge: 5 % more calls.
	hedgeEvery = 20
	// maxHedges is the number of hedges that a client may save up.
	maxHedges = 16
	// hedgePercent is the percentile of the times of a size class after which a sub-batch is
	// hedged.
	hedgePercent = 95
	// minTimes is the least number of times that a percentile is taken of.
	minTimes = 64
	// maxTimes is the number of times at which older ones count half.
	maxTimes = 1024
)

// hedger decides when a sub-batch is also sent to another server of its column. One hedger,
// with one budget, is used for all columns of a client.
type hedger struct {
	classes [sizeClasses]times
	budget  hedgeBudget
}

// sizeClasses is the number of classes: sub-batches of 1, 2-3, 4-7, ... ids.
const sizeClasses = 15

func (h *hedger) class(ids int) *times { return &h.classes[min(bits.Len(uint(ids)), sizeClasses)-1] }

// queue counts a sub-batch and returns when it is hedged, nil if it is not.
func (h *hedger) queue(ids int) *boxcarrpc.CallHedge {
	h.budget.deposit()
	return h.class(ids).hedge.Load()
}

// answered records the time of a sub-batch.
func (h *hedger) answered(ids int, took time.Duration) {
	of := h.class(ids)
	if after := of.add(took); after > 0 {
		of.hedge.Store(&boxcarrpc.CallHedge{After: after, Allow: h.budget.withdraw})
	}
}

// hedgeBudget allows one hedge for hedgeEvery sub-batches. Sub-batches count when they are
// queued, so that slow servers do not delay the count.
type hedgeBudget struct{ held atomic.Int64 }

func (b *hedgeBudget) deposit() {
	if b.held.Load() < maxHedges*hedgeEvery {
		b.held.Add(1)
	}
}

func (b *hedgeBudget) withdraw() bool {
	for {
		held := b.held.Load()
		if held < hedgeEvery {
			return false
		}
		if b.held.CompareAndSwap(held, held-hedgeEvery) {
			return true
		}
	}
}

// Times are counted in buckets that grow by an eighth of a power of two, from 16 us.
const (
	firstBits  = 14 // of the first bucket: 16 us
	timeSteps  = 8  // buckets of a power of two
	timeOctave = 23 // up to two minutes
)

// times is the distribution of recent times.
type times struct {
	hedge atomic.Pointer[boxcarrpc.CallHedge] // nil: too few times

	mu      sync.Mutex
	total   int
	added   int
	buckets [timeOctave * timeSteps]uint16
}

// bucketOf returns the bucket of a time.
func bucketOf(t time.Duration) int {
	n := uint64(max(t, 1<<firstBits))
	octave := bits.Len64(n) - 1
	step := n >> (octave - 3) & (timeSteps - 1)
	return min((octave-firstBits)*timeSteps+int(step), timeOctave*timeSteps-1)
}

// endOf returns the end of a bucket.
func endOf(bucket int) time.Duration {
	octave, step := firstBits+bucket/timeSteps, bucket%timeSteps
	return time.Duration(timeSteps+step+1) << (octave - 3)
}

// add records a time. After some times it returns the percentile, otherwise 0.
func (t *times) add(took time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buckets[bucketOf(took)]++
	t.total++
	t.added++
	if t.added < minTimes/2 {
		return 0
	}
	t.added = 0
	if t.total >= maxTimes {
		t.total = 0
		for i := range t.buckets {
			t.buckets[i] /= 2
			t.total += int(t.buckets[i])
		}
	}
	if t.total < minTimes {
		return 0
	}
	return t.percentile()
}

// percentile returns the end of the bucket that has the hedgePercent-th percentile.
func (t *times) percentile() time.Duration {
	above := t.total * (100 - hedgePercent) / 100
	for i := len(t.buckets) - 1; i > 0; i-- {
		if above -= int(t.buckets[i]); above < 0 {
			return endOf(i)
		}
	}
	return endOf(0)
}
