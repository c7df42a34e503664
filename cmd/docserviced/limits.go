package main

import (
	"errors"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
)

// maxLimit is the most that a limit can be set to.
const maxLimit = 1 << 24

// limits are the flags that bound what clients get of the server. The zero value
// means the defaults.
type limits struct {
	conns, slots, inFlight int
	clientShare            float64
	rate, clientRate       float64 // requests a second; 0: no bound
	burst, clientBurst     int
}

func (l *limits) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&l.conns, "max-conns", boxcarrpc.DefaultMaxConns, "most Boxcar connections, and at most one for each 32 KiB of --memory; one more is closed")
	flags.IntVar(&l.slots, "max-slots", boxcarrpc.DefaultMaxLanes, "most slots that Boxcar clients hold together")
	flags.IntVar(&l.inFlight, "max-in-flight", boxcarrpc.DefaultMaxInFlight, "most requests at once over Boxcar and gRPC, and at most one for each 8 KiB of --memory; "+
		"one more is refused, and a Boxcar client asks another server then")
	flags.Float64Var(&l.clientShare, "client-share", boxcarrpc.DefaultClientShare, "share of the Boxcar connections, slots and streams that one client may have; 1: no bound")
	flags.Float64Var(&l.rate, "rate", 0, "most requests a second, else refused likewise; 0: no bound")
	flags.IntVar(&l.burst, "rate-burst", 0, "of these, most at once after a rest; 0: what comes in 100 ms")
	flags.Float64Var(&l.clientRate, "client-rate", 0, "most requests a second of each client, who is known by certificate or token, "+
		"else by address; 0: no bound")
	flags.IntVar(&l.clientBurst, "client-rate-burst", 0, "of these, most at once after a rest; 0: what comes in 100 ms")
}

// check reports flags that cannot be.
func (l *limits) check() error {
	var problems []error
	for _, one := range []struct {
		flag  string
		value int
	}{{"--max-conns", l.conns}, {"--max-slots", l.slots}, {"--max-in-flight", l.inFlight}} {
		if one.value < 1 || one.value > maxLimit {
			problems = append(problems, cli.Usagef("%s %d: it must be within 1 and %d", one.flag, one.value, maxLimit))
		}
	}
	if l.clientShare <= 0 || l.clientShare > 1 {
		problems = append(problems, cli.Usagef("--client-share %v: it must be more than 0 and at most 1", l.clientShare))
	}
	for _, one := range []struct {
		flag  string
		rate  float64
		burst int
	}{{"--rate", l.rate, l.burst}, {"--client-rate", l.clientRate, l.clientBurst}} {
		switch _, err := boxcarrpc.NewLimiter(one.rate, one.burst); {
		case one.rate == 0 && one.burst != 0:
			problems = append(problems, cli.Usagef("%s-burst is a part of %[1]s; give both", one.flag))
		case one.rate != 0 && err != nil:
			problems = append(problems, cli.Usagef("%s: %v", one.flag, err))
		}
	}
	return errors.Join(problems...)
}

// What connections and requests in flight take besides their bytes: the structures and the
// goroutine of each. With so much of --memory for each, hostile clients cannot fill the
// process with them.
const (
	connMemory     = 32 << 10
	inFlightMemory = 8 << 10
)

// limit applies to the Boxcar listener, and to what that admits for others.
func (l *limits) limit(o *boxcarrpc.ServerOptions, memory int64) (err error) {
	o.MaxConns, o.MaxLanes, o.ClientShare = min(l.conns, int(memory/connMemory)), l.slots, l.clientShare
	o.Admission, err = l.admission(memory)
	return err
}

// admission is the limits that can change while the server runs.
func (l *limits) admission(memory int64) (a boxcarrpc.Admission, err error) {
	a = boxcarrpc.Admission{MaxInFlight: min(l.inFlight, int(memory/inFlightMemory)), ClientRate: l.clientRate, ClientBurst: l.clientBurst}
	if l.rate != 0 {
		a.Limiter, err = boxcarrpc.NewLimiter(l.rate, l.burst)
	}
	return a, err
}
