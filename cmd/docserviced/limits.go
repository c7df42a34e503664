package main

import (
	"errors"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/internal/cli"
)

// maxLimit is the most that a limit can be set to.
const maxLimit = 1 << 24

// limits are the flags that bound what clients get of the server. The zero value
// means the defaults.
type limits struct {
	conns, slots, inFlight int
	rate, clientRate       float64 // requests a second; 0: no bound
	burst, clientBurst     int
}

func (l *limits) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&l.conns, "max-conns", boxcarrpc.DefaultMaxConns, "most Boxcar connections; one more is closed")
	flags.IntVar(&l.slots, "max-slots", boxcarrpc.DefaultMaxLanes, "most slots that Boxcar clients hold together")
	flags.IntVar(&l.inFlight, "max-in-flight", boxcarrpc.DefaultMaxInFlight, "most requests at once over Boxcar and gRPC; "+
		"one more is refused, and a Boxcar client asks another server then")
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

// limit applies to the Boxcar door, and to what that admits for others.
func (l *limits) limit(o *boxcarrpc.ServerOptions) (err error) {
	o.MaxConns, o.MaxLanes = l.conns, l.slots
	o.Admission, err = l.admission()
	return err
}

// admission is the limits that can change while the server runs.
func (l *limits) admission() (a boxcarrpc.Admission, err error) {
	a = boxcarrpc.Admission{MaxInFlight: l.inFlight, ClientRate: l.clientRate, ClientBurst: l.clientBurst}
	if l.rate != 0 {
		a.Limiter, err = boxcarrpc.NewLimiter(l.rate, l.burst)
	}
	return a, err
}
