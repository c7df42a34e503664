package main

// In the scenarios with silent backends the simulation measures how long ladders lack
// slots, and how long it takes until they then hold the lowest free ones.

// A since is the time since which a condition holds.
type since struct {
	from int64
	is   bool
}

// begin sets the time unless it has begun before.
func (s *since) begin(now int64) {
	if !s.is {
		*s = since{now, true}
	}
}

// end returns the time since begin and ends it.
func (s *since) end(now int64) (took int64) {
	if s.is {
		took, s.is = now-s.from, false
	}
	return took
}

// watchLadder updates the times of a frontend.
func (s *simulation) watchLadder(f int32) {
	if s.now < s.watchFrom || s.c.policy != "slots" {
		return
	}
	front, p := &s.frontends[f], s.slots(f)
	if !p.Full() {
		front.short.begin(s.now)
		front.seeking.begin(s.now)
		return
	}
	s.measure.short = max(s.measure.short, front.short.end(s.now))
	if front.seeking.is && p.HoldsLowest(s.lowestFree) {
		s.measure.seeking = max(s.measure.seeking, front.seeking.end(s.now))
	}
}

// endWatch counts the times that have not ended.
func (s *simulation) endWatch() {
	m := &s.measure
	for f := range s.frontends {
		m.short = max(m.short, s.frontends[f].short.end(m.to))
		m.seeking = max(m.seeking, s.frontends[f].seeking.end(m.to))
	}
}

// lowestFree returns the lowest free slot of a backend that answers.
func (s *simulation) lowestFree(server int32) (lowest int32, ok bool) {
	b := &s.backends[server]
	return b.board.LowestFree(), b.state == up
}
