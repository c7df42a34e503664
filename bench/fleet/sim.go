package main

import (
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"docstore/bench/fleet/policy"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/subset"
)

const never = math.MaxInt64

// A simulation is a fleet on virtual time. Its state is in a few slices. It has no
// goroutines and one random generator, so that a seed determines the run. The slots
// policy, the boards and the token buckets are boxcarrpc/core's.
type simulation struct {
	c   config
	now int64
	rng rand.PCG
	gen *rand.Rand // of rng

	frontends []frontend
	backends  []backend
	rate      core.Rate // of the backends' token buckets
	tasks     []task
	freeTasks []int32
	questions []question
	freeAsked []int32
	pairs     pairs

	subset  subset.Algorithm
	used    int     // backends of a subset
	members []int32 // of frontend f's subset, from f*used on
	offsets []int32 // of the frontends of a backend, in users
	users   []int32
	scratch []int

	schedule  schedule
	requests  wire[int32] // tasks to backends
	responses wire[int32] // tasks to frontends
	refusals  wire[int32] // tasks to frontends, without a response to transfer
	asking    wire[int32] // questions to backends
	answered  wire[int32] // questions to frontends
	gossiping gossiping
	deadlines wire[timer]
	hedges    wire[timer]
	shadows   int // tasks in use beyond the requests in progress
	arrival   int64
	order     []int32 // frontends: the hot, the others, and those without requests
	hot, all  int     // how many of order are hot, and how many have requests
	hotRate   float64 // share of the requests that are of hot ones

	measure   measure
	watchFrom int64 // when backends become silent: see ladders.go
	memory    memory
	extra     int64 // of a response on a new connection
}

// memory has the heap bytes of a run.
type memory struct{ backends, frontends, pairs uint64 }

// newSimulation returns a fleet without connections.
func newSimulation(c config) (*simulation, error) {
	s := &simulation{c: c}
	s.extra = slowStart(int64(c.transfer))
	s.rng.Seed(c.seed, 0)
	s.gen = rand.New(&s.rng)
	var err error
	if s.subset, err = subset.ByName(c.subset, &subset.Options{Seed: c.seed}); err != nil {
		return nil, err
	}
	s.c.options.Weight = s.c.weight
	makePolicy, err := s.c.makePolicy()
	if err != nil {
		return nil, err
	}
	if s.rate, err = core.NewRate(c.tokens/c.service.Seconds(), policy.Burst); err != nil {
		return nil, err
	}
	before := heapBytes()
	s.makeBackends()
	s.memory.backends = heapBytes() - before
	before = heapBytes()
	s.makeFrontends(makePolicy)
	s.setClocks()
	s.memory.frontends = heapBytes() - before
	before = heapBytes()
	s.makePairs()
	s.memory.pairs = heapBytes() - before
	s.chooseClasses()
	if c.policy != "knotty" {
		s.gossiping.next = never
	}
	s.measure = newMeasure(int64(c.warmup), int64(c.warmup+c.duration))
	s.plan()
	return s, nil
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// chooseClasses chooses hot frontends and frontends without requests at random, so that
// they are independent of the subsets.
func (s *simulation) chooseClasses() {
	n := float64(s.c.frontends)
	s.hot = int(s.c.hotShare * n)
	s.all = max(1, s.c.frontends-int(s.c.coldShare*n))
	s.order = make([]int32, s.c.frontends)
	for i, f := range s.gen.Perm(s.c.frontends) {
		s.order[i] = int32(f)
		s.frontends[f].hot = i < s.hot
	}
	s.hotRate = min(1, float64(s.hot)*s.c.hotTimes/n)
	if s.hot == s.all {
		s.hotRate = 1
	}
	s.arrival = s.pause()
}

// pause returns the time to the next request.
func (s *simulation) pause() int64 { return int64(s.gen.ExpFloat64() * 1e9 / s.c.rate) }

// run runs the simulation. It calls progress about every second.
func (s *simulation) run(progress func(share float64, events uint64)) {
	for f := range s.frontends {
		s.join(int32(f))
	}
	end := int64(s.c.warmup + s.c.duration)
	looked := time.Now()
	for n := uint64(1); s.step(end); n++ {
		if n%(1<<18) == 0 && time.Since(looked) > time.Second {
			looked = time.Now()
			progress(float64(s.now)/float64(end), s.measure.events)
		}
	}
}

// step executes the next event unless it is after the end.
func (s *simulation) step(end int64) bool {
	next, source := s.arrival, 0
	for i, at := range [...]int64{
		s.requests.next(), s.responses.next(), s.refusals.next(), s.asking.next(), s.answered.next(),
		s.gossiping.rumors.next(), s.gossiping.next, s.deadlines.next(), s.hedges.next(), s.schedule.next(),
	} {
		if at < next {
			next, source = at, i+1
		}
	}
	if next > end {
		return false
	}
	s.now = next
	s.measure.events++
	switch source {
	case 0:
		s.arrival = s.now + s.pause()
		s.arrive(s.whose())
	case 1:
		s.receive(s.requests.receive())
	case 2:
		s.finish(s.responses.receive())
	case 3:
		s.finish(s.refusals.receive())
	case 4:
		s.consider(s.asking.receive())
	case 5:
		s.learn(s.answered.receive())
	case 6:
		s.hear(s.gossiping.rumors.receive())
	case 7:
		s.gossip()
	case 8:
		s.expire(s.deadlines.receive())
	case 9:
		s.hedge(s.hedges.receive())
	case 10:
		s.happen(s.schedule.pop())
	}
	return true
}

// any draws the frontend of a request while all zones have the same rate.
func (s *simulation) any() int32 {
	if s.hot > 0 && s.gen.Float64() < s.hotRate {
		return s.order[s.gen.IntN(s.hot)]
	}
	return s.order[s.hot+s.gen.IntN(max(1, s.all-s.hot))]
}

// whose draws the frontend of a request.
func (s *simulation) whose() int32 {
	f := s.any()
	for s.c.scenario == "hotzone" && zoneOf(f) != 0 && s.gen.Float64()*hotZone > 1 {
		f = s.any()
	}
	return f
}

func (s *simulation) happen(e event) {
	kind, generation, index := e.unpack()
	switch kind {
	case serviceEnds:
		if t := &s.tasks[index]; t.generation&(1<<generationBits-1) == generation {
			s.serviceEnds(index)
		}
	case freshArrives:
		s.requests.send(s.now+trip+int64(s.c.work), index)
	case responseArrives:
		s.finish(index)
	case dialed:
		s.asking.send(s.now+trip, index)
	case frontendWakes:
		if f := &s.frontends[index]; f.wake == e.at {
			f.wake = never
			s.actions(index)
		}
	case dialFails:
		s.learn(index)
	case backendFails:
		s.fail(index)
	case backendSilent:
		s.silence(index)
	case backendDrains:
		s.drain(index)
	case backendReturns:
		s.restore(index)
	case frontendMoves:
		s.move(index)
	}
}
