// Package discovery provides the addresses of servers to Boxcar clients.
//
// A pool watches a [Source], which passes it a [Snapshot] whenever the set of servers
// changes. This package has the sources that need only the standard library: [Static],
// a fixed list; [Pattern], numbered addresses; [File], a watched list; [DNS] and [SRV].
// Sources with a registry are in subpackages, so that a program links only the ones it
// uses.
//
// Subsetting needs dense server numbers on which all clients agree. [Pattern], [Static]
// and [File] with the same list on all clients, and [SRV] with numbered host names have
// such numbers. [DNS] does not.
//
// A Source may be watched by several pools at the same time. A Snapshot is immutable
// once it is passed on; a source makes a new one for each change.
package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// MaxNumber is the highest number of a server. It allows a million servers, and rejects
// dates and process numbers at the end of host names: with such numbers the choice of a
// subset would take seconds.
const MaxNumber = 1<<20 - 1

// The limits of gaps in the numbers of a set, so that the cost of choosing a subset
// depends on the number of servers and not on the highest number.
const (
	sparseNumbers    = 1024 // allowed for any number of servers
	numbersPerServer = 16
)

// Limit returns the limit of the numbers in a set of this many servers. A pool with a
// subset rejects a set with a number at or above the limit; the registries omit such
// servers.
func Limit(servers int) int { return min(sparseNumbers+numbersPerServer*servers, MaxNumber+1) }

// A NumberError reports a server number that is too high for its set.
type NumberError struct {
	Source string // origin of the number: an SRV record, etcd key, gossip member or pattern
	Number int
	Limit  int // all numbers must be below
}

func (e *NumberError) Error() string {
	return fmt.Sprintf("discovery: %s: server number %d: must be at most %d; number the servers from 0 without large gaps", e.Source, e.Number, e.Limit-1)
}

// Dense sorts the servers by number and splits them into those below the [Limit] and
// the rest, which have higher numbers.
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
	// Watch calls update with the current set once it is known, and again after each
	// change, with one call at a time. It returns the error of ctx when ctx ends, or
	// another error when the source fails. A pool then keeps the last snapshot and
	// calls Watch again after a pause.
	Watch(ctx context.Context, update func(Snapshot)) error
}

// A Fixed source knows addresses before it is watched, so that NewPool can reject
// options that do not fit them.
type Fixed interface {
	Source
	// Addresses returns addresses of servers, at least one if the set is not empty.
	Addresses() []string
}

// A Snapshot is a set of servers at one moment. It must not be modified.
type Snapshot struct {
	// Servers are the servers of the set, in no particular order.
	Servers []Server
	// Numbers is the highest number of a server plus one. It is larger than
	// len(Servers) if numbers are missing.
	Numbers int
	// Self is the number of the watching client, -1 if unknown. A client with a zone has a
	// number among those of its zone.
	Self int
	// Frontends is the number of clients, 0 if unknown.
	Frontends int
}

// Equal reports whether two snapshots are equal, with the servers in the same order.
func (s Snapshot) Equal(other Snapshot) bool {
	return s.Numbers == other.Numbers && s.Self == other.Self && s.Frontends == other.Frontends && slices.Equal(s.Servers, other.Servers)
}

// A Server is one member of a set.
type Server struct {
	// Number identifies the server in the set. Numbers are unique and dense; a server
	// that is down keeps its number.
	Number int
	// Address is HOST:PORT, as for net.Dial.
	Address string
	// Weight is the server's capacity relative to the others; 0 means 1. A server of
	// weight 2 gets twice the load. Ratios above 64 to the smallest weight in the set
	// count as 64.
	Weight float64
	// Zone is the name of the zone that the server is in, as a data center or a rack;
	// empty if unknown. Clients of the same zone use it first: see CheckZone.
	Zone string
}

// MaxZoneBytes is the maximum length of the name of a zone.
const MaxZoneBytes = 64

const zoneCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"

// OtherZone reports whether two zones are known and different.
func OtherZone(a, b string) bool { return a != b && a != "" && b != "" }

// CheckZone returns an error if zone is not the name of a zone: at most MaxZoneBytes of
// letters, digits, dots, hyphens and underscores. The empty name is valid and means that
// the zone is unknown.
func CheckZone(zone string) error {
	if len(zone) > MaxZoneBytes {
		return fmt.Errorf("zone of %d bytes: must have at most %d", len(zone), MaxZoneBytes)
	}
	if strings.IndexFunc(zone, func(c rune) bool { return !strings.ContainsRune(zoneCharacters, c) }) >= 0 {
		return fmt.Errorf("zone %q: use only letters, digits, dots, hyphens and underscores", zone)
	}
	return nil
}
