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
	head, tail int32 // tasks that wait
	current    int32 // task that is served, -1 if none
	inFlight   int32 // served, and waiting
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

// receive has a request arrive at its backend.
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

// answer sends the end of a request back, with what the backend says of itself.
func (s *simulation) answer(index int32, outcome policy.Outcome) {
	t := &s.tasks[index]
	t.outcome, t.report = outcome, policy.Silent
	if outcome != policy.Broken {
		t.report = s.report(t.choice.Server)
	}
	s.answers.send(s.now, index)
}

// report is what a backend says of itself.
func (s *simulation) report(server int32) policy.Report {
	b := &s.backends[server]
	r := policy.Report{InFlight: b.inFlight, Lowest: b.board.LowestFree()}
	if !s.c.asBoxcar {
		r.Latency = int64(b.average) * int64(b.inFlight+1)
	}
	return r
}

// settle keeps what a backend's last gossip said, before that changes: gossip is
// not sent here, but looked up by those who would have got it.
func (s *simulation) settle(server int32) {
	b := &s.backends[server]
	if tick := s.tickOf(server); tick != b.tick {
		b.tick, b.heard, b.heardFull = tick, b.sessions, b.bucket
	}
}

// tickOf counts the backend's gossip, which comes at moments of its own.
func (s *simulation) tickOf(server int32) int32 {
	return int32((s.now + s.gossipEvery() - s.gossipPhase(server)) / s.gossipEvery())
}

// tickTime is when a tick was; before the first there is none, and all was as it
// is at 0.
func (s *simulation) tickTime(server, tick int32) int64 {
	return max(0, int64(tick-1)*s.gossipEvery()+s.gossipPhase(server))
}

func (s *simulation) gossipPhase(server int32) int64 {
	return int64(uint32(server)*2654435761) * s.gossipEvery() >> 32
}

// fail ends a backend with all that it was doing.
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

// abort ends a request that a backend had when it failed.
func (s *simulation) abort(index int32) {
	s.tasks[index].generation++ // its service does not end
	s.answer(index, policy.Broken)
}

// drain has a backend finish what it has and take no more.
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
