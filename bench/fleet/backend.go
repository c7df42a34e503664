package main

import (
	"math"

	"docstore/bench/fleet/policy"
	"docstore/boxcarrpc/core"
)

type backendState uint8

const (
	up backendState = iota
	draining
	down
)

// A backend serves one request after another.
type backend struct {
	board      core.Board
	bucket     int64
	busy       int64 // nanoseconds within the measured time
	heardFull  int64 // bucket at the last tick of its gossip
	head, tail int32 // queue of tasks
	current    int32 // task in service, -1 if none
	inFlight   int32 // tasks in service and in the queue
	sessions   int32 // frontends with a connection
	served     uint32
	tick       int32   // number of the last tick that is settled
	heard      int32   // sessions at that tick
	average    float32 // service time, nanoseconds
	speed      float32
	state      backendState
}

// A task is a request.
type task struct {
	born       int64 // at the frontend
	begun      int64 // this attempt
	started    int64 // its service
	choice     policy.Choice
	report     policy.Report
	frontend   int32
	next       int32 // in the backend's queue, or of those that are free
	generation uint32
	tried      [maxTried]int32
	attempt    uint8
	outcome    policy.Outcome
}

const (
	maxTried = 4
	maxBoard = 4096 // slots of a backend, at most
)

func (s *simulation) makeBackends() {
	n := s.c.backends
	s.existing = n
	if s.c.scenario == "resize" {
		n += n / 10
	}
	lanes := float64(s.c.frontends) * float64(max(s.c.k, s.c.size)) / float64(s.c.backends)
	slots := int(min(4*lanes+64, maxBoard)) / 64 * 64
	words := core.BoardWords(slots)
	s.backends = make([]backend, n)
	arena := make([]uint64, n*words)
	for i := range s.backends {
		b := &s.backends[i]
		*b = backend{
			board: core.NewBoard(arena[i*words:(i+1)*words:(i+1)*words], slots),
			head:  -1, tail: -1, current: -1, speed: s.c.speed(i), average: float32(s.c.service),
		}
		b.average /= b.speed
		if i >= s.existing {
			b.state = down
		}
	}
}

// receive handles the arrival of a request at its backend.
func (s *simulation) receive(index int32) {
	t := &s.tasks[index]
	b := &s.backends[t.choice.Server]
	switch {
	case b.state == down:
		s.answer(index, policy.Broken)
		return
	case b.state == draining:
		s.answer(index, policy.Refused)
		return
	case s.c.bucketed():
		s.settle(t.choice.Server)
		var ok bool
		if b.bucket, ok = s.rate.Take(s.now, b.bucket, 1); !ok {
			s.answer(index, policy.Refused)
			return
		}
	}
	b.inFlight++
	if b.current < 0 {
		s.serve(b, index)
		return
	}
	t.next = -1
	if b.tail < 0 {
		b.head = index
	} else {
		s.tasks[b.tail].next = index
	}
	b.tail = index
}

func (s *simulation) serve(b *backend, index int32) {
	t := &s.tasks[index]
	b.current = index
	t.started = s.now
	took := float64(s.c.service) / float64(b.speed)
	if sigma := s.c.sigma; sigma > 0 {
		took *= math.Exp(sigma*s.gen.NormFloat64() - sigma*sigma/2)
	}
	s.schedule.push(event{s.now + int64(took), packed(serviceEnds, t.generation, index)})
}

func (s *simulation) serviceEnds(index int32) {
	t := &s.tasks[index]
	b := &s.backends[t.choice.Server]
	took := s.now - t.started
	b.average += (float32(took) - b.average) / 8
	b.inFlight--
	if s.measure.within(s.now) {
		b.served++
		b.busy += min(took, s.now-s.measure.from)
	}
	s.answer(index, policy.Success)
	b.current = -1
	if next := b.head; next >= 0 {
		if b.head = s.tasks[next].next; b.head < 0 {
			b.tail = -1
		}
		s.serve(b, next)
	}
}

// answer sends the response to a request, with the backend's report.
func (s *simulation) answer(index int32, outcome policy.Outcome) {
	t := &s.tasks[index]
	t.outcome, t.report = outcome, policy.Silent
	if outcome != policy.Broken {
		t.report = s.report(t.choice.Server)
	}
	s.answers.send(s.now, index)
}

// report returns a backend's report.
func (s *simulation) report(server int32) policy.Report {
	b := &s.backends[server]
	r := policy.Report{InFlight: b.inFlight, Lowest: b.board.LowestFree()}
	if !s.c.asBoxcar {
		r.Latency = int64(b.average) * int64(b.inFlight+1)
	}
	return r
}

// settle stores the contents of a backend's last gossip before its state changes. Gossip
// is not sent; frontends read the stored contents.
func (s *simulation) settle(server int32) {
	b := &s.backends[server]
	if tick := s.tickOf(server); tick != b.tick {
		b.tick, b.heard, b.heardFull = tick, b.sessions, b.bucket
	}
}

// tickOf returns the number of the backend's last gossip. Backends have different phases.
func (s *simulation) tickOf(server int32) int32 {
	return int32((s.now + policy.GossipInterval - s.gossipPhase(server)) / policy.GossipInterval)
}

// tickTime returns the time of a tick, 0 before the first.
func (s *simulation) tickTime(server, tick int32) int64 {
	return max(0, int64(tick-1)*policy.GossipInterval+s.gossipPhase(server))
}

func (s *simulation) gossipPhase(server int32) int64 {
	return int64(uint32(server)*2654435761) * policy.GossipInterval >> 32
}

// fail stops a backend and fails its requests.
func (s *simulation) fail(server int32) {
	b := &s.backends[server]
	b.state = down
	if b.current >= 0 {
		s.abort(b.current)
	}
	for index := b.head; index >= 0; {
		next := s.tasks[index].next
		s.abort(index)
		index = next
	}
	b.current, b.head, b.tail, b.inFlight = -1, -1, -1, 0
	s.eachUser(server, func(f int32) {
		if s.pairs.lanesOf(f, server) == 0 {
			return
		}
		for last := false; !last; {
			last = s.release(f, server, -1)
		}
		s.tell(f, policy.News{Kind: policy.Lost, Server: server, Entry: -1})
	})
	for slot := range int32(maxBoard) {
		b.board.Release(slot)
	}
}

// abort fails a request of a failed backend.
func (s *simulation) abort(index int32) {
	s.tasks[index].generation++ // cancels the end of its service
	s.answer(index, policy.Broken)
}

// drain makes a backend finish its requests and refuse new ones.
func (s *simulation) drain(server int32) {
	s.backends[server].state = draining
	s.eachUser(server, func(f int32) {
		if s.pairs.lanesOf(f, server) > 0 {
			s.tell(f, policy.News{Kind: policy.Draining, Server: server, Entry: -1})
		}
	})
}

// eachUser calls fn for the frontends that may have a connection to a backend.
func (s *simulation) eachUser(server int32, fn func(frontend int32)) {
	if s.offsets == nil {
		for f := range s.frontends {
			fn(int32(f))
		}
		return
	}
	for _, f := range s.users[s.offsets[server]:s.offsets[server+1]] {
		fn(f)
	}
}
