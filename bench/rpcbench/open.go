package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

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

// An openResult has the times of one measurement, in nanoseconds.
type openResult struct {
	times []uint32 // from the time when a call was due
	late  []uint32 // delays of idle senders, caused by the benchmark
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
		return figures{
			"due/s": best / 2, "p50 ns": percentile(r.times, 50), "p90 ns": percentile(r.times, 90),
			"p99 ns": percentile(r.times, 99), "p999 ns": percentile(r.times, 99.9), "late p99 ns": percentile(r.late, 99),
		}, nil
	})
}

// measure warms up and measures one contestant.
func (l openLoad) measure(c contestant, address string) (r openResult, err error) {
	client, err := c.connect(address, openSenders)
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
	slices.Sort(r.times)
	slices.Sort(r.late)
	return r, errors.Join(errs...)
}

// send runs one sender.
func send(client client, sender int, schedule *openloop.Schedule) (r openResult, err error) {
	request, dst := make([]byte, requestBytes), make([]byte, 0, 2*kilobyte)
	for {
		free := time.Now()
		due, ok := schedule.Next(context.Background())
		if !ok {
			return r, nil
		}
		if free.Before(due) {
			r.late = append(r.late, uint32(time.Since(due)))
		}
		putRequest(request, uint64(len(r.times)), kilobyte)
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		response, err := client.call(ctx, sender, request, dst)
		cancel()
		if err == nil {
			err = checkResponse(request, response)
		}
		if err != nil {
			return r, err
		}
		r.times = append(r.times, uint32(time.Since(due)))
	}
}
