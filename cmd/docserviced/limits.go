package main

import (
	"errors"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
)

// maxLimit is the maximum value of a limit.
const maxLimit = 1 << 24

// limits holds the flags that limit clients. The zero value selects the defaults.
type limits struct {
	conns, slots, inFlight int
	clientShare            float64
	rate, clientRate       float64 // requests per second; 0: no limit
	burst, clientBurst     int
}

func (l *limits) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&l.conns, "max-conns", boxcarrpc.DefaultMaxConns, "maximum Boxcar connections, and at most one per 32 KiB of --memory; others are closed")
	flags.IntVar(&l.slots, "max-slots", boxcarrpc.DefaultMaxLanes, "maximum slots held by all Boxcar clients")
	flags.IntVar(&l.inFlight, "max-in-flight", boxcarrpc.DefaultMaxInFlight, "maximum concurrent requests over Boxcar and gRPC, and at most one per 8 KiB of --memory; "+
		"others are refused, and Boxcar clients retry on another server")
	flags.Float64Var(&l.clientShare, "client-share", boxcarrpc.DefaultClientShare, "maximum share of Boxcar connections, slots and streams for one client; 1: no limit")
	flags.Float64Var(&l.rate, "rate", 0, "maximum requests per second; others are refused; 0: no limit")
	flags.IntVar(&l.burst, "rate-burst", 0, "maximum burst of --rate; 0: the requests of 100 ms")
	flags.Float64Var(&l.clientRate, "client-rate", 0, "maximum requests per second of each client, identified by certificate or token, "+
		"otherwise by address; 0: no limit")
	flags.IntVar(&l.clientBurst, "client-rate-burst", 0, "maximum burst of --client-rate; 0: the requests of 100 ms")
}

// check reports invalid flags.
func (l *limits) check() error {
	var problems []error
	for _, one := range []struct {
		flag  string
		value int
	}{{"--max-conns", l.conns}, {"--max-slots", l.slots}, {"--max-in-flight", l.inFlight}} {
		if one.value < 1 || one.value > maxLimit {
			problems = append(problems, cli.Usagef("%s %d: must be between 1 and %d", one.flag, one.value, maxLimit))
		}
	}
	if l.clientShare <= 0 || l.clientShare > 1 {
		problems = append(problems, cli.Usagef("--client-share %v: must be more than 0 and at most 1", l.clientShare))
	}
	for _, one := range []struct {
		flag  string
		rate  float64
		burst int
	}{{"--rate", l.rate, l.burst}, {"--client-rate", l.clientRate, l.clientBurst}} {
		switch _, err := boxcarrpc.NewLimiter(one.rate, one.burst); {
		case one.rate == 0 && one.burst != 0:
			problems = append(problems, cli.Usagef("%s-burst needs %[1]s; give both", one.flag))
		case one.rate != 0 && err != nil:
			problems = append(problems, cli.Usagef("%s: %v", one.flag, err))
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
func (l *limits) maxConns(memory int64) int    { return min(l.conns, int(memory/connMemory)) }
func (l *limits) maxInFlight(memory int64) int { return min(l.inFlight, int(memory/inFlightMemory)) }

// limit configures the Boxcar listener and its admission control, which the gRPC listener
// shares.
func (l *limits) limit(o *boxcarrpc.ServerOptions, memory int64) (err error) {
	o.MaxConns, o.MaxLanes, o.ClientShare = l.maxConns(memory), l.slots, l.clientShare
	o.Admission, err = l.admission(memory)
	return err
}

// admission returns the limits that can change while the server runs.
func (l *limits) admission(memory int64) (a boxcarrpc.Admission, err error) {
	a = boxcarrpc.Admission{MaxInFlight: l.maxInFlight(memory), ClientRate: l.clientRate, ClientBurst: l.clientBurst}
	if l.rate != 0 {
		a.Limiter, err = boxcarrpc.NewLimiter(l.rate, l.burst)
	}
	return a, err
}
