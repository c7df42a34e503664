// Package discovery tells a Boxcar client which servers there are.
//
// A [Source] is watched by a pool and hands it a [Snapshot] whenever the set
// changes. This package holds the sources that need nothing but the standard
// library: [Static], a fixed list; [Pattern], numbered servers whose addresses
// follow from their numbers; [File], a list that may change; [DNS] and [SRV].
// Sources that ask a registry live in packages of their own below this one, so
// that a program links only what it uses.
//
// Subsetting needs dense numbers on which all clients agree. [Pattern], [Static]
// and [File] with the same list everywhere, and [SRV] with numbered host names
// have them; [DNS] has not.
//
// Concurrency: a Source may be watched by any number of pools at once. A
// Snapshot is immutable from the moment it was handed over; sources make a new
// one for every change.
package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// MaxNumber is the highest number of a server. It leaves room for a million
// servers, and rejects a date or a process number at the end of a host name, which
// would make each choice of a subset take seconds.
const MaxNumber = 1<<20 - 1

// The holes that a set may have, so that the cost of choosing a subset grows with
// the number of servers and not with the highest number.
const (
	sparseNumbers    = 1024 // in a set of any size, where a few servers are left
	numbersPerServer = 16
)

// Limit is the limit for the numbers of a set with that many servers: a pool with a
// subset rejects a set with higher numbers, and the registries leave such servers out.
func Limit(servers int) int { return min(sparseNumbers+numbersPerServer*servers, MaxNumber+1) }

// A NumberError reports a number that is too high for a server of its set.
type NumberError struct {
	Source string // what names the server: an SRV record, an etcd key, a gossip member, a pattern
	Number int
	Limit  int // all numbers must be below it
}

func (e *NumberError) Error() string {
	return fmt.Sprintf("discovery: %s: the server number %d is too high, the limit is %d: number the servers from 0 without large gaps", e.Source, e.Number, e.Limit-1)
}

// Dense returns the servers, which it sorts by number, without those at the end
// whose numbers are over the [Limit], and these.
func Dense(servers []Server) (dense, rest []Server) {
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(a.Number, b.Number) })
	n := len(servers)
	for n > 0 && servers[n-1].Number >= Limit(n) {
		n--
	}
	return servers[:n:n], servers[n:]
}

// A Source reports a set of servers and its changes.
type Source interface {
	// Watch calls update with the present set as soon as it knows it and again
	// after each change, from one goroutine at a time, and returns when ctx
	// ends, with its error, or when the source can report nothing more, with
	// that error. A pool starts a Watch that failed anew after a pause and goes
	// on with the last snapshot until then.
	Watch(ctx context.Context, update func(Snapshot)) error
}

// A Fixed source knows addresses without being watched, so that a pool can reject
// options that do not fit them when it is made.
type Fixed interface {
	Source
	// Addresses returns addresses of servers, at least one if the set is not empty.
	Addresses() []string
}

// A Snapshot is a set of servers at one moment. Nobody changes it, nor what its
// slice holds, after it was passed on.
type Snapshot struct {
	// Servers are the servers of the set, in no particular order.
	Servers []Server
	// Numbers is the highest number of any server plus one. It is larger than
	// len(Servers) where numbers have holes.
	Numbers int
	// Self is the watching client's own number among its kind, -1 if unknown.
	Self int
	// Frontends is how many clients of its kind there are, 0 if unknown.
	Frontends int
}

// Equal reports whether two snapshots say the same, with the servers in the same order:
// what a source need not tell of again.
func (s Snapshot) Equal(other Snapshot) bool {
	return s.Numbers == other.Numbers && s.Self == other.Self && s.Frontends == other.Frontends && slices.Equal(s.Servers, other.Servers)
}

// A Server is one member of a set.
type Server struct {
	// Number is the server's place in the set: dense, unique, and kept by a
	// server that is merely down.
	Number int
	// Address is where it listens, as net.Dial takes it.
	Address string
	// Weight is its capacity relative to the others'; 0 means 1. Of a server of twice
	// the weight two slots are worth one of the others, up to 64 times the smallest
	// in the set.
	Weight float64
}
