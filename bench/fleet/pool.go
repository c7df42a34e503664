package main

import (
	"math"

	"docstore/bench/fleet/policy"
)

// The rules of Pool that are not the policy's: deadlines, hedges, broken connections, clocks
// and borrowed servers.

// dialTimeout is PoolOptions.DialTimeout in nanoseconds.
const dialTimeout = 1e9

// A timer refers to a request by its task and the task's life.
type timer struct {
	task int32
	life uint32
}

// A shadow is a task whose request has ended before it.
type shadow uint8

const (
	alive shadow = iota
	ended        // its choice is still to be ended
	closed
)

// slots returns a frontend's policy if it is slots.
func (s *simulation) slots(f int32) *policy.Slots {
	p, _ := s.frontends[f].policy.(*policy.Slots)
	return p
}

// expire fails a request at its deadline. A pool's slot stays busy until the answer; other
// policies forget the attempt.
func (s *simulation) expire(r timer) {
	t := &s.tasks[r.task]
	if t.life != r.life || t.shadow != alive {
		return
	}
	s.count(&s.measure.counts.failures, 1)
	s.count(&s.measure.counts.expired, 1)
	s.shadows++
	for _, index := range [...]int32{t.twin, r.task} {
		if index >= 0 {
			s.abandon(index)
		}
	}
	s.actions(t.frontend)
}

// abandon makes a task a shadow after its deadline.
func (s *simulation) abandon(index int32) {
	t := &s.tasks[index]
	t.shadow, t.twin = ended, -1
	now := s.clock(t.frontend)
	if p := s.slots(t.frontend); p != nil {
		p.Expire(now, t.choice.Server, &s.rng)
		return
	}
	t.shadow = closed
	s.frontends[t.frontend].policy.Done(now, t.choice, policy.Result{Report: policy.Silent}, &s.rng)
}

// hedge sends a request without an answer to a second backend.
func (s *simulation) hedge(r timer) {
	t := &s.tasks[r.task]
	if t.life != r.life || t.shadow != alive {
		return
	}
	p := s.slots(t.frontend)
	if p == nil || !s.frontends[t.frontend].budget.Withdraw(s.clock(t.frontend)) {
		return
	}
	c, ok := p.Hedge(s.clock(t.frontend), t.choice.Server, &s.rng)
	if !ok {
		return
	}
	s.count(&s.measure.counts.hedges, 1)
	s.shadows++
	index := s.newTask()
	t = &s.tasks[r.task]
	t.twin = index
	second := &s.tasks[index]
	second.born, second.begun, second.frontend, second.attempt = t.born, s.now, t.frontend, maxTried
	second.choice, second.twin = c, r.task
	s.requests.send(s.now+trip+int64(s.c.work), index)
	s.actions(t.frontend)
}

// outrun handles the end of an attempt if its request has ended before or has another
// attempt. The other attempt is cancelled if this one has succeeded.
func (s *simulation) outrun(index int32) bool {
	t := &s.tasks[index]
	f := t.frontend
	switch {
	case t.shadow != alive:
	case t.twin < 0:
		return false
	case t.outcome == policy.Success:
		s.tasks[t.twin].shadow, s.tasks[t.twin].twin = ended, -1
		t.twin = -1
		return false
	default:
		s.tasks[t.twin].twin = -1
	}
	s.shadows--
	s.free(index)
	s.actions(f)
	return true
}

// breakOff fails a frontend's requests at a backend to which it has ended its connections.
func (s *simulation) breakOff(f, server int32) {
	b := &s.backends[server]
	if b.state != silent {
		return // its answers are on their way
	}
	waiting := b.head
	b.head, b.tail = -1, -1
	for waiting >= 0 {
		index := waiting
		waiting = s.tasks[index].next
		if s.tasks[index].frontend != f {
			s.enqueue(b, index)
			continue
		}
		b.inFlight--
		s.answer(index, policy.Broken)
	}
}

// silence stops a backend without notice, like SIGSTOP.
func (s *simulation) silence(server int32) {
	b := &s.backends[server]
	b.state = silent
	if b.current < 0 {
		return
	}
	t := &s.tasks[b.current]
	t.generation++ // cancels the end of its service
	if t.next = b.head; b.head < 0 {
		b.tail = b.current
	}
	b.head, b.current = b.current, -1
}

// restore starts a backend again.
func (s *simulation) restore(server int32) {
	b := &s.backends[server]
	b.state = up
	if b.current < 0 {
		s.serveNext(b)
	}
}

// setClocks gives each frontend a clock with an offset up to the skew and a drift up to
// maxDrift.
func (s *simulation) setClocks() {
	if s.c.skew == 0 {
		return
	}
	for f := range s.frontends {
		s.frontends[f].offset = s.gen.Int64N(int64(s.c.skew))
		s.frontends[f].drift = maxDrift * (2*s.gen.Float64() - 1)
	}
}

// maxDrift is that of a bad quartz.
const maxDrift = 100e-6

// clock returns the time of a frontend's clock.
func (s *simulation) clock(f int32) int64 {
	front := &s.frontends[f]
	return s.now + front.offset + int64(front.drift*float64(s.now))
}

// global returns the time at which a frontend's clock shows a time.
func (s *simulation) global(f int32, local int64) int64 {
	front := &s.frontends[f]
	switch {
	case local == math.MaxInt64:
		return never
	case s.c.skew == 0:
		return local
	}
	return int64(math.Ceil(float64(local-front.offset) / (1 + front.drift)))
}

// updateBorrowing borrows backends if all of a frontend's subset are dead or full, and gives them
// back when they recover, as Pool does.
func (s *simulation) updateBorrowing(f int32) {
	subset := s.frontends[f].subset
	if subset == nil {
		return
	}
	p := s.slots(f)
	if !subset.UpdateBorrowing(&p.Ladder) {
		return
	}
	s.count(&s.measure.counts.borrowings, 1)
	now := s.clock(f)
	_, borrowed := subset.Choose(s.view(int(f)))
	members := &s.frontends[f].borrowed
	for _, b := range *members {
		p.Leave(now, b, &s.rng)
	}
	*members = (*members)[:0]
	for _, b := range borrowed {
		*members = append(*members, int32(b))
		p.Borrow(now, int32(b), &s.rng)
	}
	s.actions(f)
}
