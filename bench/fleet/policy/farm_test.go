package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/core"
)

// A farm is one client and its servers on virtual time: each server does one
// request after another, and says how many it has.
type farm struct {
	t       testing.TB
	now     int64
	policy  Policy
	rng     *rand.PCG
	servers []farmServer
	events  []farmEvent // in the order of their times

	picked, refused, failed int
	connects, disconnects   int
	probes                  int
}

type farmServer struct {
	board    core.Board
	service  int64 // mean, nanoseconds
	freeAt   int64
	inFlight int32
	down     bool
	begun    int
}

type farmEvent struct {
	at int64
	do func()
}

const (
	farmTrip    = 500_000    // nanoseconds, one way
	farmService = 10_000_000 // nanoseconds
	farmSlots   = 256
)

func newFarm(t testing.TB, name string, servers int, opts *Options, rng *rand.PCG) *farm {
	if opts == nil {
		opts = &Options{}
	}
	opts.Servers, opts.Size = servers, max(opts.Size, 2*servers)
	if name == "viamedia" {
		opts.Size = 100 * servers // connections, each of one request
	}
	makePolicy, err := ByName(name, opts)
	require.NoError(t, err)
	f := &farm{t: t, policy: makePolicy(), rng: rng, servers: make([]farmServer, servers)}
	for i := range f.servers {
		f.servers[i] = farmServer{service: farmService, board: core.NewBoard(make([]uint64, core.BoardWords(farmSlots)), farmSlots)}
		f.policy.Join(0, int32(i), rng)
	}
	f.steps()
	f.until(2e9)
	return f
}

func (f *farm) after(pause int64, do func()) {
	at, i := f.now+pause, len(f.events)
	for i > 0 && f.events[i-1].at > at {
		i--
	}
	f.events = slices.Insert(f.events, i, farmEvent{at, do})
}

// until lets time pass.
func (f *farm) until(end int64) {
	for {
		next := min(end, f.policy.Wake())
		if len(f.events) > 0 && f.events[0].at <= next {
			e := f.events[0]
			f.events = f.events[1:]
			f.now = e.at
			e.do()
		} else {
			f.now = max(f.now, next)
			if next == end {
				return
			}
		}
		f.steps()
	}
}

// steps does what the policy wants done.
func (f *farm) steps() {
	for range 10_000 {
		a, ok := f.policy.Next(f.now, f.rng)
		if !ok {
			return
		}
		s := &f.servers[a.Server]
		news := News{Server: a.Server, Entry: a.Entry, Kind: Failed, Took: 2 * farmTrip}
		switch a.Kind {
		case Connect:
			f.connects++
			if !s.down {
				news.Kind = Declined
				if number, ok := s.board.Lease(a.Below); ok {
					news.Kind, news.Slot = Connected, number
				}
			}
			f.after(2*farmTrip, func() { f.policy.Learn(f.now, news, f.rng) })
		case Probe:
			f.probes++
			f.after(2*farmTrip, func() {
				if !s.down {
					news.Kind, news.Report = Probed, f.report(a.Server)
				}
				f.policy.Learn(f.now, news, f.rng)
			})
		case Disconnect:
			f.disconnects++
			if a.Slot >= 0 {
				require.True(f.t, s.down || s.board.Release(a.Slot), "slot %d of server %d is given back twice", a.Slot, a.Server)
			}
		}
	}
	f.t.Fatal("the policy wants more and more done")
}

func (f *farm) report(server int32) Report {
	s := &f.servers[server]
	return Report{InFlight: s.inFlight, Lowest: s.board.LowestFree(), Latency: s.service * int64(1+s.inFlight)}
}

// request begins a request, and says on which server, -1 for none.
func (f *farm) request(tried []int32) int32 {
	c, ok := f.policy.Pick(f.now, tried, f.rng)
	if !ok {
		f.refused++
		return -1
	}
	f.picked++
	f.serve(c)
	f.steps()
	return c.Server
}

func (f *farm) serve(c Choice) {
	s := &f.servers[c.Server]
	begun := f.now
	end := func(outcome Outcome) func() {
		return func() {
			if outcome == Success {
				s.inFlight--
			} else {
				f.failed++
			}
			f.policy.Done(f.now, c, Result{Outcome: outcome, Took: f.now - begun, Report: f.report(c.Server)}, f.rng)
		}
	}
	if s.down {
		f.after(2*farmTrip, end(Broken))
		return
	}
	s.begun++
	s.inFlight++
	took := int64(rand.New(f.rng).ExpFloat64() * float64(s.service))
	s.freeAt = max(s.freeAt, f.now+farmTrip) + took
	f.after(s.freeAt-f.now+farmTrip, end(Success))
}

// load has requests come at a rate, in requests per second.
func (f *farm) load(perSecond float64, duration int64) {
	end := f.now + duration
	for {
		f.until(min(end, f.now+int64(rand.New(f.rng).ExpFloat64()*1e9/perSecond)))
		if f.now >= end {
			return
		}
		f.request(nil)
	}
}

// crash breaks all connections to a server.
func (f *farm) crash(server int32) {
	f.servers[server].down = true
	f.servers[server].board = core.NewBoard(make([]uint64, core.BoardWords(farmSlots)), farmSlots)
	f.policy.Learn(f.now, News{Kind: Lost, Server: server, Entry: -1}, f.rng)
	f.steps()
}

func (f *farm) begun() (list []int) {
	for i := range f.servers {
		list = append(list, f.servers[i].begun)
	}
	return list
}

func (f *farm) forget() {
	for i := range f.servers {
		f.servers[i].begun = 0
	}
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

// used is how many servers had a request.
func used(list []int) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(n int) bool { return n == 0 }))
}
