package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"docstore/bench/internal/results"
	"docstore/internal/openloop"
)

// An openLoad has random arrivals at a rate of all senders together. The latency of a call counts from
// the time when it was due, which avoids coordinated omission.
type openLoad struct {
	rate     float64 // calls a second
	duration time.Duration
}

// openSenders is large enough that a sender is rarely busy when its next call is due.
const openSenders = 128

// An openResult has the times of one measurement.
type openResult struct {
	times []time.Duration // from the time when a call was due
	late  []time.Duration // delays of idle senders, caused by the benchmark
}

// open finds the rate that grpc-go reaches with 64 callers, and measures it and Boxcar at half of it.
func (s *settings) open() (err error) {
	servers, stop, err := startChildren(grpcAndBoxcar)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	best, l := 0.0, s.load(64, kilobyte)
	for i, name := range grpcAndBoxcar[:3] {
		kept, err := s.keeper.Measure(name, l.phase("open, the limit"), 1, func() (figures, error) { return measure(contestantNamed(name), servers[i], l) })
		if err != nil {
			return err
		}
		best = max(best, kept["ops/s"])
	}
	return s.keeper.Rounds(s.rounds, "open", grpcAndBoxcar, func(i int) (figures, error) {
		r, err := openLoad{best / 2, s.duration}.measure(contestantNamed(grpcAndBoxcar[i]), servers[i].address)
		if err != nil {
			return nil, err
		}
		f := figures{"due/s": best / 2}
		results.AddPercentiles(f, "", r.times)
		results.AddPercentiles(f, "late ", r.late)
		return f, nil
	})
}

// measure warms up and measures one contestant.
func (l openLoad) measure(c contestant, address string) (r openResult, err error) {
	client, err := c.dial(address, openSenders)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, err := (openLoad{l.rate, l.duration / 10}).run(client); err != nil {
		return r, err
	}
	return l.run(client)
}

func (l openLoad) run(client client) (r openResult, err error) {
	var (
		parts    = make([]openResult, openSenders)
		errs     = make([]error, openSenders)
		wg       sync.WaitGroup
		schedule = openloop.New(time.Now(), l.duration, l.rate) // the same schedule for every contestant
	)
	for i := range openSenders {
		wg.Go(func() { parts[i], errs[i] = send(client, i, schedule) })
	}
	wg.Wait()
	for _, part := range parts {
		r.times = append(r.times, part.times...)
		r.late = append(r.late, part.late...)
	}
	if len(r.times) == 0 {
		errs = append(errs, errors.New("no call was due"))
	}
	return r, errors.Join(errs...)
}

// send runs one sender.
func send(client client, sender int, schedule *openloop.Schedule) (r openResult, err error) {
	c := newCaller(client, sender, kilobyte)
	for {
		free := time.Now()
		due, ok := schedule.Next(context.Background())
		if !ok {
			return r, nil
		}
		if free.Before(due) {
			r.late = append(r.late, time.Since(due))
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		err := c.call(ctx)
		cancel()
		if err != nil {
			return r, err
		}
		r.times = append(r.times, time.Since(due))
	}
}
