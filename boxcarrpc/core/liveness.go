package core

// Liveness detects dead connections by their silence, the time without received bytes, and
// keeps the peer from closing the connection as idle.
//
//   - With a pending response the connection is suspect, and is pinged, after
//     max(50 ms, 4 x p99 of its response times), at most half of the timeout. It is
//     dead after the timeout.
//   - Without one, but after sending frames that have no response (stream messages),
//     it is pinged after half of the timeout.
//   - Otherwise it is pinged after keepAlive.
//   - In any state it is pinged keepAlive after the last written byte, because the peer
//     cannot observe what this side receives.
//
// The response to a ping is pending like any other. Liveness evaluates these times in
// Step, so an action may be late by one step; the caller steps often while Waiting is
// true. At most a quarter of the timeout counts between two steps: a longer interval
// means that this process was stalled and may have unread bytes.
type Liveness struct {
	timeout, keepAlive int64

	since    int64  // start of the silence
	last     int64  // time of the last step
	received uint64 // Traffic.Received at the last step
	written  uint64 // Traffic.Written at the last step
	wrote    int64  // time of the step that saw the last written byte, or of the last ping
	sent     uint64 // Traffic.Sent when bytes were last received
	waiting  bool   // the last step had a pending response or unanswered frames
	pinged   bool   // pinged since bytes were last received
	suspect  bool
}

// A connection is suspect after suspectTimes the p99, at least suspectFloor.
const (
	suspectFloor = 50e6 // nanoseconds
	suspectTimes = 4
)

// NewLiveness returns the Liveness of a new connection. Times are in nanoseconds.
func NewLiveness(now, timeout, keepAlive int64) Liveness {
	return Liveness{timeout: timeout, keepAlive: keepAlive, since: now, last: now, wrote: now}
}

// A Verdict is the state of a connection and the action that it requires.
type Verdict uint8

// The verdicts. Step returns Recovered, Ping and Suspect once for each silence.
const (
	Fine      Verdict = iota // nothing to do
	Recovered                // a suspect connection received bytes again
	Ping                     // send a ping
	Suspect                  // send a ping and prefer other connections
	Dead                     // close the connection
)

// Traffic describes a connection at a step.
type Traffic struct {
	Received uint64 // total bytes received
	Written  uint64 // total bytes written
	Sent     uint64 // total frames sent that have no response
	Pending  bool   // a response is pending, other than to a ping
	P99      int64  // of the response times, in nanoseconds; used if Pending
}

// Step returns the verdict on the connection.
func (s *Liveness) Step(now int64, traffic Traffic) Verdict {
	if heldUp := now - s.last - s.timeout/4; s.waiting && heldUp > 0 {
		s.since += heldUp
	}
	s.last = now
	if traffic.Written != s.written {
		s.written, s.wrote = traffic.Written, now
	}
	if traffic.Received != s.received {
		s.received, s.sent, s.since, s.pinged = traffic.Received, traffic.Sent, now, false
		s.waiting = traffic.Pending
		if s.suspect {
			s.suspect = false
			return Recovered
		}
	}
	pending := traffic.Pending || s.pinged
	waiting := pending || traffic.Sent != s.sent
	if waiting && !s.waiting {
		s.since = now // the silence before does not count
	}
	s.waiting = waiting
	silence := now - s.since
	switch {
	case pending && silence >= s.timeout:
		return Dead
	case pending && !s.suspect && silence >= s.suspectAfter(traffic.P99):
		s.suspect, s.pinged, s.wrote = true, true, now
		return Suspect
	case now-s.wrote >= s.keepAlive, !pending && (silence >= s.keepAlive || waiting && silence >= s.timeout/2):
		if !pending {
			s.since = now
		}
		s.pinged, s.waiting, s.wrote = true, true, now
		return Ping
	}
	return Fine
}

// suspectAfter returns the silence after which a connection with a pending response is
// suspect. It leaves half of the timeout for the response to the ping.
func (s *Liveness) suspectAfter(p99 int64) int64 {
	return min(max(suspectFloor, suspectTimes*p99), s.timeout/2)
}

// Waiting reports whether the last step had a pending response or frames sent since
// bytes were last received.
func (s *Liveness) Waiting() bool { return s.waiting }
