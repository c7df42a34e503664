package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestLiveness(t *testing.T) {
	const ms = 1e6 // times of a step are in milliseconds
	type step struct {
		now     int64
		traffic Traffic
		want    Verdict
	}
	heard := func(bytes uint64) Traffic { return Traffic{Received: bytes} }
	owing := func(bytes uint64) Traffic { return Traffic{Received: bytes, Pending: true} }
	slow := func(p99 int64) Traffic { return Traffic{Pending: true, P99: p99 * ms} }
	said := func(bytes, said uint64) Traffic { return Traffic{Received: bytes, Written: said, Sent: said} }
	for name, steps := range map[string][]step{
		"idle, then asked, then heard": {
			{14_999, heard(0), Fine}, {15_000, heard(0), Ping}, {15_030, heard(0), Fine}, {15_040, heard(8), Fine},
			{29_999, heard(8), Fine}, {30_000, heard(8), Ping},
		},
		"idle, asked, and dead": {
			{15_000, heard(0), Ping}, {15_050, heard(0), Suspect}, {15_999, heard(0), Fine}, {16_000, heard(0), Dead},
		},
		"the silence before a request does not count": {
			{10_000, owing(0), Fine}, {10_049, owing(0), Fine}, {10_050, owing(0), Suspect},
		},
		"a slow handler answers the ping": {
			{100, owing(0), Fine}, {150, owing(0), Suspect}, {160, owing(16), Recovered}, {200, owing(16), Fine},
			{210, owing(16), Suspect}, {250, owing(32), Recovered},
		},
		"a request that is never answered": {
			{100, owing(0), Fine}, {150, owing(0), Suspect}, {1099, owing(0), Fine}, {1100, owing(0), Dead},
		},
		"answered without the ping's answer": {
			{100, owing(0), Fine}, {150, owing(0), Suspect}, {200, heard(9), Recovered}, {300, heard(9), Fine},
		},
		"answers that use to take long": {
			{100, slow(30), Fine}, {219, slow(30), Fine}, {220, slow(30), Suspect},
		},
		"answers that use to take longer than the timeout are asked about in time": {
			{100, slow(3000), Fine}, {599, slow(3000), Fine}, {600, slow(3000), Suspect}, {1100, slow(3000), Dead},
		},
		"quick answers do not make for haste": {
			{100, slow(1), Fine}, {149, slow(1), Fine}, {150, slow(1), Suspect},
		},
		"a stream that is sent on into silence": {
			{5000, said(0, 1), Fine}, {5400, said(0, 7), Fine}, {5499, said(0, 7), Fine}, {5500, said(0, 8), Ping},
			{5550, said(0, 9), Suspect}, {6499, said(0, 9), Fine}, {6500, said(0, 9), Dead},
		},
		"a stream that is sent on is asked about twice a timeout at most": {
			{5000, said(0, 1), Fine}, {5500, said(0, 2), Ping}, {5510, said(8, 3), Fine}, {5520, said(8, 4), Fine},
			{6019, said(8, 5), Fine}, {6020, said(8, 6), Ping},
		},
		"a stream that is only received from": {
			{5000, said(0, 1), Fine}, {5010, said(50, 1), Fine}, {9000, said(60, 1), Fine}, {19_999, said(70, 1), Fine},
			{20_000, said(80, 1), Ping}, {20_010, said(96, 2), Fine}, {35_009, said(110, 2), Fine}, {35_010, said(120, 2), Ping},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewLiveness(0, 1000*ms, 15_000*ms)
			for i, x := range steps {
				for now := s.last + 200*ms; s.Waiting() && now < x.now*ms; now += 200 * ms {
					require.Equal(t, Fine, s.Step(now, steps[i-1].traffic), "at %d ms", now/ms)
				}
				require.Equal(t, x.want, s.Step(x.now*ms, x.traffic), "at %d ms", x.now)
			}
		})
	}
}

// After a stall of any duration the process pings a connection and waits for the answer
// before it closes the connection.
func TestStalledProcessKeepsConnections(t *testing.T) {
	const ms = 1e6
	for _, stall := range []int64{300, 1000, 100_000} {
		s := NewLiveness(0, 1000*ms, 15_000*ms)
		owing := Traffic{Pending: true}
		require.Equal(t, Fine, s.Step(10_000*ms, owing))
		now := 10_000 + stall
		require.Equal(t, Suspect, s.Step(now*ms, owing), "after %d ms", stall)
		for range 3 {
			now += 200
			require.Equal(t, Fine, s.Step(now*ms, owing))
		}
		require.Equal(t, Fine, s.Step((now+149)*ms, owing))
		require.Equal(t, Dead, s.Step((now+150)*ms, owing))
	}
}

// A connection is never dead if it answers each ping within half of the timeout.
func TestLivenessKeepsAnsweringConnections(t *testing.T) {
	const timeout, tick = int64(1e9), int64(25e6)
	for answerAfter := int64(1); answerAfter < 20; answerAfter++ { // ticks
		for p99 := int64(0); p99 < 2e9; p99 += 100e6 {
			s := NewLiveness(0, timeout, 60e9)
			received, asked := uint64(0), int64(0)
			for k := int64(1); k < 4000; k++ {
				if asked > 0 && k >= asked+answerAfter {
					received, asked = received+8, 0
				}
				switch s.Step(k*tick, Traffic{Received: received, Pending: true, P99: p99}) {
				case Suspect:
					asked = k
				case Dead:
					t.Fatalf("dead at step %d, although it answers after %d steps", k, answerAfter)
				}
			}
		}
	}
}

// A server closes a connection that it has received nothing from for twice keepAlive. So a
// client writes at least every keepAlive, whatever it receives meanwhile, and no server that
// answers is dead.
func TestLivenessWritesWithinKeepAlive(t *testing.T) {
	const timeout, keepAlive, tick = int64(1e9), int64(90e9), int64(200e6)
	rng := testseed.Rand(t)
	s := NewLiveness(0, timeout, keepAlive)
	var traffic Traffic
	var wrote, pong int64
	for now, until := tick, int64(3600e9); now < until; now += tick {
		if pong != 0 && now >= pong {
			traffic.Received, pong = traffic.Received+16, 0
		}
		// Usually the server sends more often than every 2 x keepAlive, and the client seldom.
		if rng.IntN(1+rng.IntN(400)) == 0 {
			traffic.Received += uint64(rng.IntN(1000))
		}
		switch rng.IntN(2000) {
		case 0:
			traffic.Pending, pong, wrote = true, now+tick, now
			traffic.Written++
		case 1, 2, 3:
			traffic.Pending = false
			traffic.Received++
		case 4:
			traffic.Sent, traffic.Written, wrote = traffic.Sent+1, traffic.Written+1, now
		}
		switch s.Step(now, traffic) {
		case Ping, Suspect:
			traffic.Written, wrote, pong = traffic.Written+1, now, now+tick
		case Dead:
			t.Fatalf("dead after %v, although each ping is answered", time.Duration(now))
		}
		require.Less(t, now-wrote, keepAlive+tick, "nothing was written for long, after %v", time.Duration(now))
	}
}
