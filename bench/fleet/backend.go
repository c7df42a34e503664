package main

import (
	"docstore/bench/fleet/policy"
	"docstore/boxcarrpc/core"
)

type backendState uint8

const (
	up backendState = iota
	draining
	silent // neither works nor answers
	down
)

// A backend serves one request after another.
type backend struct {
	board      core.Board
	bucket     int64
	busy       int64 // nanoseconds within the measured time
	head, tail int32 // queue of tasks
	current    int32 // task in service, -1 if none
	inFlight   int32 // tasks in service and in the queue
	sessions   int32 // frontends with a connection
	served     uint32
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
	twin       int32  // other attempt of a hedged request, -1 if none
	life       uint32 // counts the uses of the task
	shadow     shadow
	next       int32 // in the backend's queue, or of those that are free
	generation uint32
	tried      [maxTried]int32
	attempt    uint8
	outcome    policy.Outcome
}

const (
	maxTried = 3    // attempts of a request after the first
	maxBoard = 4096 // slots of a backend, at most
)

func (s *simulation) makeBackends() {
	n := s.c.backends
	lanes := float64(s.c.frontends) * float64(max(s.c.k, s.c.size)) / float64(s.c.backends)
	slots := int(min(4*lanes+64, maxBoard)) / 64 * 64
	if s.c.board > 0 {
		slots = s.c.board
	}
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
		var ok bool
		if b.bucket, ok = s.rate.Take(s.now, b.bucket, 1, 0); !ok {
			s.count(&s.measure.counts.rateLimited, 1)
			s.answer(index, policy.Refused)
			return
		}
	}
	b.inFlight++
	if b.current < 0 && b.state != silent {
		s.serve(b, index)
		return
	}
	s.enqueue(b, index)
}

func (s *simulation) enqueue(b *backend, index int32) {
	s.tasks[index].next = -1
	if b.tail < 0 {
		b.head = index
	} else {
		s.tasks[b.tail].next = index
	}
	b.tail = index
}

func (s *simulation) serve(b *backend, index int32) {
	t := &s.tasks[index]
	for t.shadow != alive { // cancelled while it waited
		b.inFlight--
		s.answer(index, policy.Neutral)
		if index = s.pop(b); index < 0 {
			return
		}
		t = &s.tasks[index]
	}
	b.current = index
	t.started = s.now
	took := float64(s.c.service) / float64(b.speed) * s.c.shape.draw(s.gen, s.c.sigma)
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
	s.serveNext(b)
}

// serveNext begins the service of the next waiting request.
func (s *simulation) serveNext(b *backend) {
	b.current = -1
	if next := s.pop(b); next >= 0 {
		s.serve(b, next)
	}
}

// pop takes the next waiting request out of a backend's queue, -1 if there is none.
func (s *simulation) pop(b *backend) int32 {
	next := b.head
	if next >= 0 {
		if b.head = s.tasks[next].next; b.head < 0 {
			b.tail = -1
		}
	}
	return next
}

// answer sends the response to a request, with the backend's report.
func (s *simulation) answer(index int32, outcome policy.Outcome) {
	t := &s.tasks[index]
	t.outcome, t.report = outcome, policy.Silent
	if outcome != policy.Broken {
		t.report = s.report(t.choice.Server)
	}
	s.send(t, index)
}

// send sends the answer of a task, which has a response to transfer unless it failed.
func (s *simulation) send(t *task, index int32) {
	at := s.now + trip
	switch {
	case t.outcome != policy.Success:
		s.refusals.send(at, index)
	case s.c.sharedLink || t.choice.Fresh && s.extra > 0:
		if t.choice.Fresh {
			at += s.extra
		}
		if link := &s.frontends[t.frontend].link; s.c.sharedLink {
			at = max(at, *link)
			*link = at + int64(s.c.transfer)
		}
		s.schedule.push(event{at + int64(s.c.transfer), packed(responseArrives, 0, index)})
	default:
		s.responses.send(at+int64(s.c.transfer), index)
	}
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

// fail stops a backend and fails its requests.
func (s *simulation) fail(server int32) {
	b := &s.backends[server]
	drained := b.state == draining
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
		last := s.pairs.lanesOf(f, server) == 0
		if last && !drained { // slots keep a connection to a draining server
			return
		}
		for !last {
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
