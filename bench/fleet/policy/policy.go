package policy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"docstore/boxcarrpc/core"
)

// A Policy chooses the servers of one client's requests.
type Policy interface {
	// Join puts a server into the set. It was not in it.
	Join(now int64, server int32, rng *rand.PCG)
	// Leave takes a server out of the set, if it was in it.
	Leave(now int64, server int32, rng *rand.PCG)

	// Pick chooses the server of a request, if possible not one of those that have failed it.
	// It is not ok if no server is known or usable. The caller ends every choice with Done.
	Pick(now int64, tried []int32, rng *rand.PCG) (c Choice, ok bool)
	// Done ends a request.
	Done(now int64, c Choice, r Result, rng *rand.PCG)

	// Next returns the next action, if there is one. The caller calls it until it is
	// not ok, after every other step, and at the time of Wake.
	Next(now int64, rng *rand.PCG) (a Action, ok bool)
	// Wake returns the time of the next call of Next if there is no other step before.
	Wake() int64
	// Learn passes the result of an action, or other news of a server.
	Learn(now int64, n News, rng *rand.PCG)
}

// A Choice is the chosen server of a request.
type Choice struct {
	Server int32
	// Entry identifies the choice within the policy.
	Entry int32
	// Fresh means that the request needs a new connection.
	Fresh bool

	use uint32 // generation of the entry
}

// An Outcome is the result of a request with regard to its server.
type Outcome uint8

// The outcomes of a request.
const (
	Neutral Outcome = iota // no information, as after a cancellation
	Success                // the server answered
	Refused                // the server did not start the request
	Broken                 // the connection broke; Learn reports other broken connections
)

// A Result is how a request ended.
type Result struct {
	Outcome Outcome
	Took    int64 // nanoseconds from Pick to the answer
	Report  Report
}

// A Report is a server's state, sent with a response or a probe.
type Report struct {
	InFlight int32 // requests in service or queued
	Lowest   int32 // lowest free slot, core.NoSlot if none or unknown
	Latency  int64 // current duration of a request in nanoseconds, 0 if unknown
}

// Silent is the report of a server without information.
var Silent = Report{Lowest: core.NoSlot}

// An ActionKind is the kind of an action.
type ActionKind uint8

// The kinds of action.
const (
	Connect    ActionKind = iota // to lease a slot of Server below Below, over a new connection if there is none
	Disconnect                   // to give Slot of Server back
	Probe                        // to ask Server for a Report
	Break                        // to end the connections to Server, which is silent
)

// An Action is a request of a policy to its caller. The result of a Connect is the news
// Connected, Declined or Failed, that of a Probe is Probed or Failed.
type Action struct {
	Kind   ActionKind
	Server int32
	Below  int32 // Connect: the slot must be below; core.NoSlot for any
	Slot   int32 // Disconnect: the slot's number, -1 if the policy does not know it
	Entry  int32 // goes back with the news
}

// A NewsKind is what happened.
type NewsKind uint8

// The kinds of news.
const (
	Connected NewsKind = iota // Slot was leased
	Declined                  // no slot below the limit is free
	Failed                    // there was no answer
	Lost                      // all connections to the server have ended
	Draining                  // the server wants no new requests
	Probed                    // the server's answer to a probe, its way there and back in Took
)

// News is what happened.
type News struct {
	Kind   NewsKind
	Server int32
	Entry  int32 // of the action that this answers; -1 for none
	Slot   int32
	Took   int64
	Report Report
}

// Options are the parameters of policies. Zero values mean the defaults.
type Options struct {
	// Size is the number of slots of a ladder, and the maximum of viamedia's connections. The
	// default is 64.
	Size int
	// Servers is the expected number of servers, and the size of knotty's table. The default is 16.
	Servers int
	// Connections is the number of connections of formulaic to each server, with one request at a
	// time on each. The default is no limit: requests share a connection.
	Connections int
	// SilenceTimeout makes slots detect silent servers as boxcarrpc's Pool does, with its
	// PoolOptions.SilenceTimeout, in nanoseconds. The default is not to detect them.
	SilenceTimeout int64
	// Weight returns the capacity of a server relative to the smallest, from 1 to core.MaxWeight,
	// when it joins: its slots count as lower by that factor. Nil means that all are equal. Only
	// slots use it.
	Weight func(server int32) float64
}

// policies makes each policy, in the order of doc.go.
var policies = []struct {
	name string
	make func(o *Options) Policy
}{
	{"slots", func(o *Options) Policy { return newSlots(o) }},
	{"formulaic", func(o *Options) Policy { return newFormulaic(o) }},
	{"viamedia", func(o *Options) Policy { return newViamedia(o) }},
	{"knotty", func(o *Options) Policy { return newKnotty(o) }},
	{"random", func(o *Options) Policy { return &random{newSet(o)} }},
	{"roundrobin", func(o *Options) Policy { return &roundRobin{set: newSet(o)} }},
	{"p2c", func(o *Options) Policy { return &p2c{newSet(o)} }},
	{"leastrequest", func(o *Options) Policy { return &leastRequest{newSet(o)} }},
	{"prequal", func(o *Options) Policy { return newPrequal(o) }},
}

// Names returns the names of the policies.
func Names() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// ByName returns a constructor of policies, one for each client.
func ByName(name string, opts *Options) (func() Policy, error) {
	o := new(Options)
	if opts != nil {
		*o = *opts
	}
	o.Size, o.Servers = cmp.Or(o.Size, 64), cmp.Or(o.Servers, 16)
	if o.Size < 1 || o.Servers < 1 || o.Connections < 0 {
		return nil, fmt.Errorf("policy: size %d, %d servers, %d connections: must be positive", o.Size, o.Servers, o.Connections)
	}
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("policy: unknown policy %q: must be one of %s", name, strings.Join(Names(), ", "))
	}
	return func() Policy { return policies[i].make(o) }, nil
}
