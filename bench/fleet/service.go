package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// A shape is the form of the distribution of service times with mean 1.
type shape struct {
	name string
	draw func(gen *rand.Rand, sigma float64) float64
	p99  func(sigma float64) float64
}

var shapes = []shape{
	{"lognormal", func(gen *rand.Rand, sigma float64) float64 {
		if sigma == 0 {
			return 1
		}
		return math.Exp(sigma*gen.NormFloat64() - sigma*sigma/2)
	}, func(sigma float64) float64 { return math.Exp(2.3263*sigma - sigma*sigma/2) }},
	{"exponential", func(gen *rand.Rand, _ float64) float64 { return gen.ExpFloat64() },
		func(float64) float64 { return math.Log(100) }},
}

func shapeNames() (names []string) {
	for _, s := range shapes {
		names = append(names, s.name)
	}
	return names
}

// The document's estimate of a request, apart from the service: 1 MB in 10 ms, and the
// frontend's own work.
const (
	documentTransfer = 10 * time.Millisecond
	documentWork     = 21 * time.Microsecond
)

// initialWindow is the time in which the link carries the initial congestion window of
// TCP, 10 segments of 1,460 bytes, at 1 MB in documentTransfer.
const initialWindow = int64(documentTransfer) * 14_600 / 1_000_000

// slowStart returns how much longer a response takes on a new connection: the congestion
// window doubles in each round trip until it keeps the link busy.
func slowStart(transfer int64) (extra int64) {
	for window := initialWindow; window < min(2*trip, transfer); window *= 2 {
		extra += 2*trip - window
		transfer -= window
	}
	return extra
}

// largest returns the run with the longest mean service time whose p99 is at most goal,
// in steps of goalStep.
func largest(c config, goal time.Duration, progress func(share float64, events uint64)) (best result, err error) {
	low, high := 1, int(goal/goalStep)
	for low <= high {
		middle := (low + high) / 2
		c.service = time.Duration(middle) * goalStep
		r, err := simulate(c, progress)
		if err != nil {
			return best, err
		}
		if r.p99 <= goal && r.counts.lost() == 0 {
			best, low = r, middle+1
		} else {
			high = middle - 1
		}
		if best.config.service == 0 {
			best = r
		}
	}
	return best, nil
}

const goalStep = 250 * time.Microsecond
