package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
)

// MaxLimit is the maximum value of a limit.
const MaxLimit = 1 << 24

// Ages of connections over gRPC and HTTP. Clients behind an address of several servers use
// a new one within DefaultConnAge. A new connection over TLS costs about a millisecond of
// processor time on both sides.
const (
	DefaultConnAge = 30 * time.Minute
	minConnAge     = time.Second
)

// Limits limit clients. The default of those without a meaning of 0 is that of
// boxcarrpc.
type Limits struct {
	Conns, Slots, InFlight int
	ClientShare            float64
	Rate, ClientRate       float64 // requests per second; 0: no limit
	Burst, ClientBurst     int
	ConnAge                time.Duration // 0: no limit
}

// withDefaults returns the limits with their defaults.
func (l Limits) withDefaults() Limits {
	l.Conns, l.Slots = cmp.Or(l.Conns, boxcarrpc.DefaultMaxConns), cmp.Or(l.Slots, boxcarrpc.DefaultMaxLanes)
	l.InFlight, l.ClientShare = cmp.Or(l.InFlight, budget.DefaultMaxInFlight), cmp.Or(l.ClientShare, boxcarrpc.DefaultClientShare)
	return l
}

// Check reports invalid limits.
func (l *Limits) Check() error {
	var problems []error
	for _, one := range []struct {
		flag  string
		value int
	}{{"--max-conns", l.Conns}, {"--max-slots", l.Slots}, {"--max-in-flight", l.InFlight}} {
		if one.value < 1 || one.value > MaxLimit {
			problems = append(problems, fmt.Errorf("%s %d: must be between 1 and %d", one.flag, one.value, MaxLimit))
		}
	}
	if l.ClientShare <= 0 || l.ClientShare > 1 {
		problems = append(problems, fmt.Errorf("--client-share %v: must be more than 0 and at most 1", l.ClientShare))
	}
	if l.ConnAge != 0 && l.ConnAge < minConnAge {
		problems = append(problems, fmt.Errorf("--max-conn-age %v: must be 0 for no limit, or at least %v", l.ConnAge, minConnAge))
	}
	for _, one := range []struct {
		flag  string
		rate  float64
		burst int
	}{{"--rate", l.Rate, l.Burst}, {"--client-rate", l.ClientRate, l.ClientBurst}} {
		switch _, err := budget.NewLimiter(one.rate, one.burst); {
		case one.rate == 0 && one.burst != 0:
			problems = append(problems, fmt.Errorf("%s-burst needs %[1]s; give both", one.flag))
		case one.rate != 0 && err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", one.flag, err))
		}
	}
	return errors.Join(problems...)
}

// Memory of connections and requests in flight besides their bytes: structures and
// goroutines. With this share of --memory for each, hostile clients cannot exhaust the
// process's memory.
const (
	connMemory     = 32 << 10
	inFlightMemory = 8 << 10
)

// maxConns and maxInFlight are the limits that a memory allows.
func (l *Limits) maxConns(memory int64) int    { return min(l.Conns, int(memory/connMemory)) }
func (l *Limits) maxInFlight(memory int64) int { return min(l.InFlight, int(memory/inFlightMemory)) }

// leastClientConns are the connections over HTTP or gRPC that a client may always have.
const leastClientConns = 1 << 7

// clientConns returns how many of the connections of a listener for HTTP or gRPC one client
// may have.
func (l *Limits) clientConns(conns int) int {
	return min(conns, max(leastClientConns, int(float64(conns)*l.ClientShare)))
}

// limit configures the Boxcar listener and its admission control, which the gRPC listener
// shares.
func (l *Limits) limit(o *boxcarrpc.ServerOptions, memory int64) (err error) {
	o.MaxConns, o.MaxLanes, o.ClientShare = l.maxConns(memory), l.Slots, l.ClientShare
	o.Admission, err = l.admission(memory)
	return err
}

// admission returns the limits that can change while the server runs.
func (l *Limits) admission(memory int64) (a budget.Admission, err error) {
	a = budget.Admission{MaxInFlight: l.maxInFlight(memory), ClientRate: l.ClientRate, ClientBurst: l.ClientBurst}
	if l.Rate != 0 {
		a.Limiter, err = budget.NewLimiter(l.Rate, l.Burst)
	}
	return a, err
}
