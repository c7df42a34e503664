package core

// Liveness tells a quiet connection from a dead one.
//
// A connection that owes an answer and brings no byte for max(50 ms, 4 x the p99 of
// its answers), at most half of the timeout, is suspect and is asked for a sign of
// life; after the whole timeout it is dead. One that owes none, but on which
// something was said, as a message of a stream, is asked after half of the timeout,
// any other every keepAlive; then it owes the sign of life. Time counts from step to
// step, so that all of this may come a step late; while something is owed steps are to
// come often. Of the time between two no more than a quarter of the timeout counts:
// longer, this process itself was held up, and may have what it waits for before it.
type Liveness struct {
	timeout, keepAlive int64

	since    int64  // when the silence began to count
	last     int64  // when the last step was
	received uint64 // bytes at the last step
	said     uint64 // when it was last heard
	waiting  bool   // something was owed or said at the last step
	pinged   bool   // asked since it was last heard
	suspect  bool
}

// What the p99 of answers has to do with suspicion.
const (
	suspectFloor = 50e6 // nanoseconds
	suspectTimes = 4
)

// NewLiveness begins to listen to a connection that has brought no byte yet.
// Times are in nanoseconds.
func NewLiveness(now, timeout, keepAlive int64) Liveness {
	return Liveness{timeout: timeout, keepAlive: keepAlive, since: now, last: now}
}

// A Verdict is what to do about a connection's silence.
type Verdict uint8

// The verdicts. Recovered, Ping and Suspect come once for each silence.
const (
	Fine      Verdict = iota // nothing to do
	Recovered                // a suspect was heard again
	Ping                     // send a ping
	Suspect                  // send a ping, and use other connections first
	Dead                     // give it up
)

// A Traffic is what a step is told of a connection.
type Traffic struct {
	Received uint64 // bytes that it has brought since it was made
	Sent     uint64 // counts what was sent that has no answer of its own
	Pending  bool   // an answer, other than to a ping
	P99      int64  // of its answers, in nanoseconds; looked at if it owes one
}

// Step looks at the connection.
func (s *Liveness) Step(now int64, traffic Traffic) Verdict {
	if heldUp := now - s.last - s.timeout/4; s.waiting && heldUp > 0 {
		s.since += heldUp
	}
	s.last = now
	if traffic.Received != s.received {
		s.received, s.said, s.since, s.pinged = traffic.Received, traffic.Sent, now, false
		s.waiting = traffic.Pending
		if s.suspect {
			s.suspect = false
			return Recovered
		}
		return Fine
	}
	owes := traffic.Pending || s.pinged
	waiting := owes || traffic.Sent != s.said
	if waiting && !s.waiting {
		s.since = now // the silence before anything was owed does not count
	}
	s.waiting = waiting
	quiet := now - s.since
	switch {
	case owes && quiet >= s.timeout:
		return Dead
	case owes && !s.suspect && quiet >= s.patience(traffic.P99):
		s.suspect, s.pinged = true, true
		return Suspect
	case !owes && (quiet >= s.keepAlive || waiting && quiet >= s.timeout/2):
		s.pinged, s.waiting, s.since = true, true, now
		return Ping
	}
	return Fine
}

// patience is how long an answer may be owed without suspicion. The ping needs
// the time until the timeout for its answer.
func (s *Liveness) patience(p99 int64) int64 {
	return min(max(suspectFloor, suspectTimes*p99), s.timeout/2)
}

// Waiting reports whether the connection was to bring something when it was last
// looked at.
func (s *Liveness) Waiting() bool { return s.waiting }
