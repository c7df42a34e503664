package main

import (
	"strings"

	"docstore/bench/fleet/policy"
	"docstore/boxcarrpc/core"
)

// A frontend is a client with a policy and a retry budget.
type frontend struct {
	policy policy.Policy
	wake   int64 // time of the policy's next scheduled wake-up, or never
	budget core.RetryBudget
	conns  int32
	part   int32 // part of its table that the next gossip is about
	hot    bool
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
	}
}

// makePairs computes the subsets.
func (s *simulation) makePairs() {
	f, k := s.c.frontends, s.c.k
	s.pairs = make(pairs, f*k)
	if s.c.wholeFleet() {
		return
	}
	s.members = make([]int32, f*k)
	for i := range f {
		for j, b := range s.subsetOf(i, s.existing) {
			s.members[i*k+j] = int32(b)
		}
	}
	if s.c.policy == "knotty" || s.c.scenario == "resize" {
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
func (s *simulation) subsetOf(frontend, backends int) []int {
	s.scratch = s.subset.Subset(s.scratch[:0], frontend, s.c.frontends, backends, s.c.k)
	return s.scratch
}

// join gives a frontend its subset.
func (s *simulation) join(f int32) {
	p := s.frontends[f].policy
	if s.c.wholeFleet() {
		p.Join(s.now, int32(s.existing-1), &s.rng)
	} else {
		for _, b := range s.members[int(f)*s.c.k:][:s.c.k] {
			p.Join(s.now, b, &s.rng)
		}
	}
	if s.c.policy == "knotty" {
		s.schedule.push(event{s.gen.Int64N(policy.GossipInterval), packed(gossipHeard, 0, f)})
	}
	s.actions(f)
}

// resize updates a frontend's subset to the current fleet.
func (s *simulation) resize(f int32) {
	p := s.frontends[f].policy
	n := len(s.backends)
	if s.c.wholeFleet() {
		p.Join(s.now, int32(n-1), &s.rng)
		return
	}
	old := s.members[int(f)*s.c.k:][:s.c.k]
	fresh := s.subsetOf(int(f), n)
	stays := make(map[int32]bool, len(fresh))
	for _, b := range fresh {
		stays[int32(b)] = true
	}
	had := make(map[int32]bool, len(old))
	for _, b := range old {
		had[b] = true
		if !stays[b] {
			p.Leave(s.now, b, &s.rng)
			if !strings.HasPrefix(s.c.policy, "slots") { // slots give back their slots themselves
				for last := s.pairs.lanesOf(f, b) == 0; !last; {
					last = s.release(f, b, -1)
				}
			}
		}
	}
	for j, b := range fresh {
		if !had[int32(b)] {
			p.Join(s.now, int32(b), &s.rng)
		}
		old[j] = int32(b)
	}
	s.actions(f)
}

// arrive handles a new request at a frontend.
func (s *simulation) arrive(f int32) {
	var index int32
	if n := len(s.freeTasks); n > 0 {
		index = s.freeTasks[n-1]
		s.freeTasks = s.freeTasks[:n-1]
	} else {
		index = int32(len(s.tasks))
		s.tasks = append(s.tasks, task{})
	}
	t := &s.tasks[index]
	t.born, t.frontend, t.attempt = s.now, f, 0
	s.frontends[f].budget.Deposit()
	s.count(&s.measure.counts.requests, 1)
	s.attempt(index)
}

// attempt sends a request to a backend.
func (s *simulation) attempt(index int32) {
	t := &s.tasks[index]
	f := t.frontend
	c, ok := s.frontends[f].policy.Pick(s.now, t.tried[:t.attempt], &s.rng)
	if !ok {
		s.count(&s.measure.counts.refused, 1)
		s.free(index)
		s.actions(f)
		return
	}
	t.choice, t.begun = c, s.now
	if c.Fresh {
		s.count(&s.measure.counts.connects, 1)
		s.connect(f, c.Server)
		s.schedule.push(event{s.now + 2*trip, packed(freshArrives, 0, index)})
	} else {
		s.requests.send(s.now, index)
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
	f.policy.Done(s.now, t.choice, policy.Result{Outcome: t.outcome, Took: s.now - t.begun, Report: t.report}, &s.rng)
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
	if int(t.attempt) < min(s.c.retries, maxTried) && f.budget.Withdraw(s.now) {
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
	s.tasks[index].generation++
	s.freeTasks = append(s.freeTasks, index)
}

// tell passes news to a frontend at once. A broken connection would be noticed after a
// trip, which its requests take anyway.
func (s *simulation) tell(f int32, n policy.News) {
	s.frontends[f].policy.Learn(s.now, n, &s.rng)
	s.actions(f)
}

// actions executes the actions of a frontend's policy.
func (s *simulation) actions(f int32) {
	front := &s.frontends[f]
	for {
		a, ok := front.policy.Next(s.now, &s.rng)
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
			s.release(f, a.Server, a.Slot)
		}
	}
	if wake := front.policy.Wake(); wake < front.wake {
		front.wake = wake
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
	s.asking.send(s.now, index)
}

// consider computes a backend's answer to a question.
func (s *simulation) consider(index int32) {
	q := &s.questions[index]
	b := &s.backends[q.action.Server]
	q.news = policy.News{Kind: policy.Failed, Server: q.action.Server, Entry: q.action.Entry, Report: policy.Silent}
	switch {
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
	s.answered.send(s.now, index)
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
		s.settle(server)
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
		s.settle(server)
		b.sessions--
		s.frontends[f].conns--
	}
	return last
}
