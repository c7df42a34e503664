package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// The size of -truth: real clients and servers in this process over TCP, a tenth of the
// servers at half speed, and the same in the simulator.
const (
	truthTasks = 100
	truthSlots = 64 // a client has at most as many connections, and each takes two of 20,000 file descriptors
)

// shares describes the distribution of requests.
type shares struct {
	slow     float64 // requests of a slow server relative to another
	busiest  float64 // share of the busiest tenth of the servers
	idleHalf float64 // share of the less busy half
}

func sharesOf(served []float64, slow func(i int) bool) (s shares) {
	var all, slowSum, slowCount float64
	for i, n := range served {
		all += n
		if slow(i) {
			slowSum += n
			slowCount++
		}
	}
	s.slow = slowSum / slowCount / ((all - slowSum) / (float64(len(served)) - slowCount))
	sorted := slices.Sorted(slices.Values(served))
	for i, n := range sorted {
		if i < len(sorted)/2 {
			s.idleHalf += n / all
		}
		if i >= len(sorted)-len(sorted)/10 {
			s.busiest += n / all
		}
	}
	return s
}

func (s shares) plus(t shares, weight float64) shares {
	return shares{s.slow + weight*t.slow, s.busiest + weight*t.busiest, s.idleHalf + weight*t.idleHalf}
}

// simulationsPerRig is the number of simulations per real run. The distribution of slots,
// and with it the load of a server, is random.
const simulationsPerRig = 4

// truth runs each config repeatedly in the simulator and for real, with different seeds,
// and writes the means.
func truth(out io.Writer, say func(string, ...any), configs []config, repeats int) error {
	text := "| policy | slow server / other: simulated | real | | busiest tenth: simulated | real | | less busy half: simulated | real | | p50 ms: simulated | real | | p99 ms: simulated | real | |\n|" +
		strings.Repeat("---|", 16) + "\n"
	for _, c := range configs {
		var simulated, actual shares
		var simulatedTimes, realTimes times
		for range repeats {
			var s *simulation
			for range simulationsPerRig {
				var err error
				if s, err = newSimulation(c); err != nil {
					return err
				}
				s.run(func(float64, uint64) {})
				simulated = simulated.plus(s.shares(), 1/float64(repeats*simulationsPerRig))
				simulatedTimes = slices.Concat(simulatedTimes, s.measure.hot, s.measure.rest)
				c.seed++
			}
			rig, err := newRig(s)
			if err != nil {
				return err
			}
			served, took, err := rig.run()
			if err != nil {
				return err
			}
			actual = actual.plus(sharesOf(served, s.slow), 1/float64(repeats))
			realTimes = append(realTimes, took...)
			say("%s: slow server / other %.2f\n", c.policy, sharesOf(served, s.slow).slow)
		}
		slices.Sort(simulatedTimes)
		slices.Sort(realTimes)
		pair := func(a, b float64) string { return fmt.Sprintf("%.3f | %.3f | %+.1f %%", a, b, 100*(b/a-1)) }
		text += fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", c.policy,
			pair(simulated.slow, actual.slow), pair(simulated.busiest, actual.busiest), pair(simulated.idleHalf, actual.idleHalf),
			pair(inMS(simulatedTimes, 0.5), inMS(realTimes, 0.5)), pair(inMS(simulatedTimes, 0.99), inMS(realTimes, 0.99)))
	}
	_, err := io.WriteString(out, text)
	return err
}

func inMS(t times, share float64) float64 { return t.quantile(share).Seconds() * 1000 }

func (s *simulation) slow(i int) bool { return s.backends[i].speed < 0.8 }

func (s *simulation) shares() shares {
	served := make([]float64, len(s.backends))
	for i := range s.backends {
		served[i] = float64(s.backends[i].served)
	}
	return sharesOf(served, s.slow)
}

// A rig has real clients and servers with the config of a simulation.
type rig struct {
	s       *simulation
	servers []*rigServer
	pools   []*boxcarrpc.Pool
	ended   sync.WaitGroup
}

// A rigServer serves one request after another.
type rigServer struct {
	*boxcarrpc.Server
	address string
	turn    chan struct{}
	served  atomic.Int64
	mean    float64 // nanoseconds
	sigma   float64
}

func newRig(s *simulation) (*rig, error) {
	r := &rig{s: s}
	var addresses []string
	for i := range s.backends {
		server, err := r.serve(float64(s.c.service)/float64(s.backends[i].speed), s.c.sigma)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.servers, addresses = append(r.servers, server), append(addresses, server.address)
	}
	options := boxcarrpc.PoolOptions{
		Size: truthSlots, SilenceTimeout: 10 * time.Second, MaxWait: 10 * time.Second, // a hundred tasks share this machine
	}
	for range s.frontends {
		pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &options)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.pools = append(r.pools, pool)
	}
	return r, nil
}

func (r *rig) serve(mean, sigma float64) (*rigServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &rigServer{address: listener.Addr().String(), turn: make(chan struct{}, 1), mean: mean, sigma: sigma}
	server.Server = boxcarrpc.NewServer(server.handle, nil)
	r.ended.Go(func() { _ = server.Serve(listener) }) // until Close
	return server, nil
}

func (s *rigServer) handle(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
	select {
	case s.turn <- struct{}{}: // waiting requests proceed in order
	case <-ctx.Done():
		return dst, ctx.Err()
	}
	time.Sleep(time.Duration(s.mean * math.Exp(s.sigma*rand.NormFloat64()-s.sigma*s.sigma/2)))
	<-s.turn
	s.served.Add(1)
	return dst, nil
}

// run makes requests, each client at its rate, and counts those in the measured time.
func (r *rig) run() (served []float64, latency times, err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	c := &r.s.c
	ctx := context.Background()
	var (
		calls  sync.WaitGroup
		mu     sync.Mutex
		failed error
		before = make([]int64, len(r.servers))
	)
	for _, pool := range r.pools {
		for pool.Stats().Slots < truthSlots {
			time.Sleep(10 * time.Millisecond)
		}
	}
	start := time.Now()
	measured := start.Add(c.warmup)
	end := measured.Add(c.duration)
	counting := false
	for at := start; at.Before(end); at = at.Add(time.Duration(r.s.pause())) {
		time.Sleep(time.Until(at))
		if !counting && at.After(measured) {
			counting = true
			for i, s := range r.servers {
				before[i] = s.served.Load()
			}
		}
		pool, counted := r.pools[r.s.whose()], counting
		calls.Go(func() {
			began := time.Now()
			_, err := pool.Call(ctx, "work", nil, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case counted:
				latency = append(latency, int64(time.Since(began)))
			}
		})
	}
	for i, s := range r.servers {
		served = append(served, float64(s.served.Load()-before[i]))
	}
	calls.Wait()
	return served, latency, failed
}

func (r *rig) close() error {
	var errs []error
	for _, pool := range r.pools {
		errs = append(errs, pool.Close())
	}
	for _, server := range r.servers {
		errs = append(errs, server.Close())
	}
	r.ended.Wait()
	return errors.Join(errs...)
}
