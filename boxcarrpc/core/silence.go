package core

// Silence tells a quiet connection from a dead one.
//
// A connection that owes something and brings no byte for a tenth of the
// timeout is suspect and is asked for a sign of life; after the whole timeout it
// is dead. One that owes nothing is asked every keepAlive, and then owes the
// answer. Time counts from step to step: steps that are a tenth of the timeout
// apart find a dead connection at most that much late.
type Silence struct {
	timeout, keepAlive int64

	since    int64  // when the silence began to count
	received uint64 // bytes at the last step
	owed     bool   // something was owed at the last step
	pinged   bool   // asked since it was last heard
	suspect  bool
}

// NewSilence begins to listen to a connection that has brought no byte yet.
// Times are in nanoseconds.
func NewSilence(now, timeout, keepAlive int64) Silence {
	return Silence{timeout: timeout, keepAlive: keepAlive, since: now}
}

// A Verdict is what to do about a connection's silence.
type Verdict uint8

// The verdicts. Well, Ask and Suspect come once for each silence.
const (
	Fine    Verdict = iota // nothing to do
	Well                   // a suspect was heard again
	Ask                    // send a ping
	Suspect                // send a ping, and use other connections first
	Dead                   // give it up
)

// Step looks at the connection: how many bytes it has brought since it was
// made, and whether it owes an answer other than to a ping.
func (s *Silence) Step(now int64, received uint64, owes bool) Verdict {
	if received != s.received {
		s.received, s.since, s.pinged = received, now, false
		s.owed = owes
		if s.suspect {
			s.suspect = false
			return Well
		}
		return Fine
	}
	owes = owes || s.pinged
	if owes && !s.owed {
		s.since = now // the silence before anything was owed does not count
	}
	s.owed = owes
	quiet := now - s.since
	switch {
	case owes && quiet >= s.timeout:
		return Dead
	case owes && !s.suspect && quiet >= s.timeout/10:
		s.suspect, s.pinged = true, true
		return Suspect
	case !owes && quiet >= s.keepAlive:
		s.pinged, s.owed, s.since = true, true, now
		return Ask
	}
	return Fine
}

// Waiting reports whether the connection was asked and has not been heard since.
func (s *Silence) Waiting() bool { return s.pinged }
