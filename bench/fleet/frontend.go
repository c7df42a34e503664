package main

import (
	"slices"

	"docstore/bench/fleet/policy"
	"docstore/boxcarrpc/core"
)

// A frontend is a client with a policy and a retry budget.
type frontend struct {
	policy   policy.Policy
	wake     int64 // time of the policy's next scheduled wake-up, or never
	budget   core.RetryBudget
	conns    int32
	offset   int64        // of its clock, nanoseconds
	drift    float64      // of its clock
	subset   *core.Subset // nil if it does not borrow
	borrowed []int32
	short    since // the ladder has lacked slots
	seeking  since // and has not held the lowest free ones
	link     int64 // when its network link is free
	hot      bool
}

// A question is a Connect or a Probe in progress.
type question struct {
	action   policy.Action
	news     policy.News
	asked    int64
	frontend int32
}

func (s *simulation) makeFrontends(makePolicy func() policy.Policy) {
	s.frontends = make([]frontend, s.c.frontends)
	for i := range s.frontends {
		s.frontends[i] = frontend{policy: makePolicy(), wake: never, budget: core.NewRetryBudget(0, retryShare, retriesPerSecond, int32(max(s.c.size, retriesPerSecond)))}
		if p := s.slots(int32(i)); p != nil && s.c.zoned {
			p.PreferZone(func(server int32) bool { return zoneOf(server) != zoneOf(int32(i)) })
		}
		if s.c.borrow && s.c.policy == "slots" {
			subset := core.NewSubset(s.subset, s.c.k, 0)
			subset.Choose(s.view(i))
			s.frontends[i].subset = &subset
		}
	}
}

// makePairs computes the subsets.
func (s *simulation) makePairs() {
	f, k := s.c.frontends, len(s.subsetOf(0))
	s.used = k
	s.pairs = make(pairs, f*k)
	if s.c.wholeFleet() {
		return
	}
	s.members = make([]int32, f*k)
	for i := range f {
		for j, b := range s.subsetOf(i) {
			s.members[i*k+j] = int32(b)
		}
	}
	if s.c.policy == "knotty" || s.c.borrow {
		return // the subsets change
	}
	s.offsets = make([]int32, len(s.backends)+1)
	for _, b := range s.members {
		s.offsets[b+1]++
	}
	for b := range s.backends {
		s.offsets[b+1] += s.offsets[b]
	}
	s.users = make([]int32, len(s.members))
	place := append([]int32(nil), s.offsets...)
	for i, b := range s.members {
		s.users[place[b]] = int32(i / k)
		place[b]++
	}
}

// subsetOf returns a frontend's subset, which is valid until the next call.
func (s *simulation) subsetOf(frontend int) []int {
	if s.c.zoned {
		chosen := core.NewSubset(s.subset, s.c.k, 0)
		own, _ := chosen.Choose(s.view(frontend))
		s.scratch = append(s.scratch[:0], own...)
		return s.scratch
	}
	groups := s.c.groups()
	rows := s.c.backends / groups
	s.scratch = s.subset.Subset(s.scratch[:0], frontend/groups, s.c.frontends/groups, rows, s.c.k)
	first := s.groupOf(frontend) * rows
	for i := range s.scratch {
		s.scratch[i] += first
	}
	return s.scratch
}

// view returns the backends as a frontend knows them.
func (s *simulation) view(frontend int) core.View {
	v := core.View{Numbers: s.c.backends, Self: frontend, Frontends: s.c.frontends, Exists: func(int) bool { return true }}
	if s.c.zoned {
		v.Self, v.Frontends, v.Stride = frontend/zones, s.c.frontends/zones, zones
		v.Near = func(number int) bool { return zoneOf(int32(number)) == zoneOf(int32(frontend)) }
	}
	return v
}

// join gives a frontend its subset.
func (s *simulation) join(f int32) {
	p := s.frontends[f].policy
	if s.c.wholeFleet() {
		p.Join(s.clock(f), int32(s.c.backends-1), &s.rng)
	} else {
		for _, b := range s.members[int(f)*s.used:][:s.used] {
			p.Join(s.clock(f), b, &s.rng)
		}
	}
	s.actions(f)
}

// move gives a frontend its subset after the loss or the return of a cell.
func (s *simulation) move(f int32) {
	if s.c.wholeFleet() {
		return
	}
	p := s.frontends[f].policy
	old := s.members[int(f)*s.used:][:s.used]
	fresh := s.subsetOf(int(f))
	for _, b := range old {
		if slices.Contains(fresh, int(b)) {
			continue
		}
		p.Leave(s.clock(f), b, &s.rng)
		if s.c.policy != "slots" { // slots give back their slots themselves
			for last := s.pairs.lanesOf(f, b) == 0; !last; {
				last = s.release(f, b, -1)
			}
		}
	}
	for _, b := range fresh {
		if !slices.Contains(old, int32(b)) {
			p.Join(s.clock(f), int32(b), &s.rng)
		}
	}
	for j, b := range fresh {
		old[j] = int32(b)
	}
	s.actions(f)
}

// arrive handles a new request at a frontend.
func (s *simulation) arrive(f int32) {
	index := s.newTask()
	t := &s.tasks[index]
	t.born, t.frontend, t.attempt, t.twin = s.now, f, 0, -1
	if s.c.deadline > 0 {
		s.deadlines.send(s.now+int64(s.c.deadline), timer{index, t.life})
	}
	if s.c.hedge > 0 {
		s.hedges.send(s.now+int64(s.c.hedge), timer{index, t.life})
	}
	s.frontends[f].budget.Deposit()
	s.count(&s.measure.counts.requests, 1)
	s.attempt(index)
}

func (s *simulation) newTask() (index int32) {
	if n := len(s.freeTasks); n > 0 {
		index = s.freeTasks[n-1]
		s.freeTasks = s.freeTasks[:n-1]
		return index
	}
	s.tasks = append(s.tasks, task{})
	return int32(len(s.tasks) - 1)
}

// attempt sends a request to a backend.
func (s *simulation) attempt(index int32) {
	t := &s.tasks[index]
	f := t.frontend
	c, ok := s.frontends[f].policy.Pick(s.clock(f), t.tried[:t.attempt], &s.rng)
	if !ok {
		s.count(&s.measure.counts.refused, 1)
		s.free(index)
		s.actions(f)
		return
	}
	t.choice, t.begun = c, s.now
	s.count(&s.measure.counts.attempts, 1)
	if zoneOf(c.Server) != zoneOf(f) {
		s.count(&s.measure.counts.left, 1)
	}
	if c.Fresh {
		s.count(&s.measure.counts.connects, 1)
		s.connect(f, c.Server)
		s.schedule.push(event{s.now + 2*trip, packed(freshArrives, 0, index)})
	} else {
		s.requests.send(s.now+trip+int64(s.c.work), index)
	}
	s.actions(f)
}

// connect makes a connection for a policy without slots. All lanes of a frontend to a
// backend share one slot.
func (s *simulation) connect(f, server int32) {
	b := &s.backends[server]
	if b.state != up {
		return
	}
	slot, ok := int32(-1), s.pairs.lanesOf(f, server) > 0
	if !ok {
		slot, ok = b.board.Lease(core.NoSlot)
	}
	if ok {
		s.connected(f, server, slot)
	}
}

// finish handles the response to a request at its frontend.
func (s *simulation) finish(index int32) {
	t := &s.tasks[index]
	f := &s.frontends[t.frontend]
	if t.shadow != closed {
		f.policy.Done(s.clock(t.frontend), t.choice, policy.Result{Outcome: t.outcome, Took: s.now - t.begun, Report: t.report}, &s.rng)
	}
	if s.outrun(index) {
		return
	}
	if t.outcome == policy.Success {
		s.measure.done(s.now, s.now-t.born, f.hot)
		front := t.frontend
		s.free(index)
		s.actions(front)
		return
	}
	s.count(&s.measure.counts.denied, 1)
	if t.choice.Fresh && t.outcome == policy.Broken && s.pairs.lanesOf(t.frontend, t.choice.Server) > 0 {
		s.release(t.frontend, t.choice.Server, -1)
	}
	if t.attempt < maxTried && f.budget.Withdraw(s.clock(t.frontend)) {
		t.tried[t.attempt] = t.choice.Server
		t.attempt++
		s.count(&s.measure.counts.retries, 1)
		s.attempt(index)
		return
	}
	s.count(&s.measure.counts.failures, 1)
	front := t.frontend
	s.free(index)
	s.actions(front)
}

func (s *simulation) free(index int32) {
	t := &s.tasks[index]
	t.generation++
	t.life++
	t.shadow = alive
	s.freeTasks = append(s.freeTasks, index)
}

// tell passes news to a frontend at once. A broken connection would be noticed after a
// trip, which its requests take anyway.
func (s *simulation) tell(f int32, n policy.News) {
	s.frontends[f].policy.Learn(s.clock(f), n, &s.rng)
	s.actions(f)
}

// actions executes the actions of a frontend's policy.
func (s *simulation) actions(f int32) {
	front := &s.frontends[f]
	for {
		a, ok := front.policy.Next(s.clock(f), &s.rng)
		if !ok {
			break
		}
		switch a.Kind {
		case policy.Connect:
			s.count(&s.measure.counts.messages, 2)
			fresh := s.pairs.lanesOf(f, a.Server) == 0
			if fresh {
				s.count(&s.measure.counts.connects, 1)
			}
			s.ask(f, a, fresh)
		case policy.Probe:
			s.count(&s.measure.counts.messages, 2)
			s.ask(f, a, false)
		case policy.Disconnect:
			s.count(&s.measure.counts.messages, 1)
			s.count(&s.measure.counts.disconnects, 1)
			s.release(f, a.Server, a.Slot)
		case policy.Break:
			s.breakOff(f, a.Server)
		}
	}
	s.updateBorrowing(f)
	s.watchLadder(f)
	if wake := s.global(f, front.policy.Wake()); wake < front.wake {
		s.schedule.push(event{max(wake, s.now+1), packed(frontendWakes, 0, f)})
		front.wake = max(wake, s.now+1)
	}
}

// ask sends a question, after a round trip if it needs a new connection.
func (s *simulation) ask(f int32, a policy.Action, dial bool) {
	var index int32
	if n := len(s.freeAsked); n > 0 {
		index = s.freeAsked[n-1]
		s.freeAsked = s.freeAsked[:n-1]
	} else {
		index = int32(len(s.questions))
		s.questions = append(s.questions, question{})
	}
	s.questions[index] = question{action: a, frontend: f, asked: s.now}
	if dial {
		s.schedule.push(event{s.now + 2*trip, packed(dialed, 0, index)})
		return
	}
	s.asking.send(s.now+trip, index)
}

// consider computes a backend's answer to a question.
func (s *simulation) consider(index int32) {
	q := &s.questions[index]
	b := &s.backends[q.action.Server]
	q.news = policy.News{Kind: policy.Failed, Server: q.action.Server, Entry: q.action.Entry, Report: policy.Silent}
	if q.action.Kind == policy.Probe && b.state != up && s.slots(q.frontend) != nil {
		s.freeAsked = append(s.freeAsked, index) // an unanswered ping
		return
	}
	switch {
	case b.state == silent:
		s.schedule.push(event{s.now + dialTimeout, packed(dialFails, 0, index)})
		return
	case b.state != up:
	case q.action.Kind == policy.Probe:
		q.news.Kind, q.news.Report = policy.Probed, s.report(q.action.Server)
	default:
		q.news.Kind = policy.Declined
		if slot, ok := b.board.Lease(q.action.Below); ok {
			q.news.Kind, q.news.Slot = policy.Connected, slot
			s.connected(q.frontend, q.action.Server, slot)
		}
	}
	s.answered.send(s.now+trip, index)
}

// learn handles the answer to a question at its frontend.
func (s *simulation) learn(index int32) {
	q := &s.questions[index]
	f, news := q.frontend, q.news
	if news.Kind == policy.Connected && s.pairs.lanesOf(f, news.Server) == 0 {
		news.Kind = policy.Failed // the backend has failed meanwhile
	}
	news.Took = s.now - q.asked
	s.freeAsked = append(s.freeAsked, index)
	s.tell(f, news)
}

// connected adds a lane.
func (s *simulation) connected(f, server, slot int32) {
	if s.pairs.add(f, server, slot) {
		s.backends[server].sessions++
		s.frontends[f].conns++
	}
}

// release removes a lane and reports whether it was the pair's last. slot is -1 if the
// policy does not know it; the pair then has only one.
func (s *simulation) release(f, server, slot int32) (last bool) {
	known, last := s.pairs.remove(f, server)
	if known < 0 {
		return true // it ended with its backend
	}
	b := &s.backends[server]
	if slot >= 0 {
		b.board.Release(slot)
	}
	if last {
		if slot < 0 {
			b.board.Release(known)
		}
		b.sessions--
		s.frontends[f].conns--
	}
	return last
}
