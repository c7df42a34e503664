package bucket

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// measuredRequests is the number of requests of each kind that Measure sends.
	measuredRequests = 50
	// measuredBytes is the size of the objects, about that of an increment of a second.
	measuredBytes = 64 << 10
)

// Latency is the time that requests of a kind take.
type Latency struct{ Median, Slowest time.Duration }

// Latencies are those of small objects, put and read one after the other.
type Latencies struct{ Put, Get Latency }

// Measure measures the latencies of a store. It creates objects below check/, and removes them.
func Measure(ctx context.Context, b Bucket) (l Latencies, err error) {
	c := newChecker(b)
	defer c.cleanUp(context.WithoutCancel(ctx))
	content := make([]byte, measuredBytes)
	names := make([]string, measuredRequests)
	if l.Put, err = latencyOf(func(i int) error {
		names[i] = fmt.Sprint("measured-", i)
		return c.put(ctx, names[i], content)
	}); err != nil {
		return l, err
	}
	l.Get, err = latencyOf(func(i int) error { return c.want(ctx, names[i], 0, -1, content) })
	return l, err
}

// latencyOf returns the latency of a request that is sent measuredRequests times.
func latencyOf(request func(i int) error) (Latency, error) {
	var took [measuredRequests]time.Duration
	for i := range took {
		started := time.Now()
		if err := request(i); err != nil {
			return Latency{}, err
		}
		took[i] = time.Since(started)
	}
	slices.Sort(took[:])
	return Latency{took[measuredRequests/2], took[measuredRequests-1]}, nil
}
