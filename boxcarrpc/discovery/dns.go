package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultDNSInterval is the default time between two queries for a name.
const DefaultDNSInterval = 30 * time.Second

// DNSOptions are the options of DNS and SRV. Nil and zero fields mean the defaults.
type DNSOptions struct {
	// Interval is the time between two queries. The resolver does not return the TTL
	// of a record. The default is DefaultDNSInterval.
	Interval time.Duration
	// Resolver resolves names. The default is the system's resolver with StrictErrors:
	// it fails if only one of the A and AAAA queries is answered, because a partial
	// answer would remove servers from the set.
	Resolver *net.Resolver
}

// DNS returns a source with a server for each address (A or AAAA) of a host name. It
// takes the name with a port, as in "search.example.com:7070".
//
// DNS has no server numbers. Each watcher assigns its own, first in the order of the
// addresses. A server keeps its number while it is listed; a new one gets the lowest
// free number. This is sufficient for subsetting by random or rendezvous, but not for
// algorithms that need the same numbers on all clients.
//
// If a query fails or returns no servers, the set does not change. If the first query
// fails, Watch returns its error.
func DNS(hostPort string, opts *DNSOptions) Source {
	return newDNS(opts, func(ctx context.Context, r *net.Resolver) ([]Server, error) {
		host, port, err := net.SplitHostPort(hostPort)
		if err != nil {
			return nil, err
		}
		addresses, err := r.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		servers := make([]Server, len(addresses))
		slices.SortFunc(addresses, netip.Addr.Compare)
		for i, a := range addresses {
			servers[i] = Server{Number: unknownNumber, Address: net.JoinHostPort(a.Unmap().String(), port)}
		}
		return servers, nil
	})
}

// SRV returns a source with the servers in the SRV records of a name, such as
// "_boxcar._tcp.search.example.com", with their ports and weights. Only the records with
// the lowest priority value count. TXT records of the same name give the zones of host
// names; other TXT records are ignored:
//
//	be-7.search.example.com zone=eu-1a
//
// While the query for these fails, the zones of its last answer remain.
//
// If all host names end in numbers (see [Ordinal]), as those of a StatefulSet do, these
// are the servers' numbers, and Watch fails with a [NumberError] if one is above
// MaxNumber. Otherwise numbers are as with [DNS]. Failed queries are as with [DNS].
func SRV(name string, opts *DNSOptions) Source {
	var zones zones
	return newDNS(opts, func(ctx context.Context, r *net.Resolver) ([]Server, error) {
		_, records, err := r.LookupSRV(ctx, "", "", name)
		if err != nil {
			return nil, err
		}
		var servers []Server
		for _, record := range records { // sorted by priority
			if record.Priority != records[0].Priority {
				break
			}
			host := strings.TrimSuffix(record.Target, ".")
			servers = append(servers, Server{
				Number:  ordinalOr(host, unknownNumber),
				Address: net.JoinHostPort(host, strconv.Itoa(int(record.Port))),
				Weight:  float64(record.Weight),
			})
		}
		if err := checkOrdinals(name, servers); err != nil {
			return nil, err
		}
		zones.set(ctx, r, name, servers)
		slices.SortFunc(servers, func(a, b Server) int {
			return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(b.Weight, a.Weight))
		})
		// Records that differ only in weight are one server.
		return slices.CompactFunc(servers, func(a, b Server) bool { return a.Address == b.Address }), nil
	})
}

// zoneTimeout is the maximum duration of a query for zones, which not every DNS server answers.
const zoneTimeout = 2 * time.Second

// zones are the zones of the last answer, by host name.
type zones struct {
	mu    sync.Mutex
	known map[string]string
}

// set sets the zones of servers that TXT records of the name give.
func (z *zones) set(ctx context.Context, r *net.Resolver, name string, servers []Server) {
	ctx, cancel := context.WithTimeout(ctx, zoneTimeout)
	defer cancel()
	texts, err := r.LookupTXT(ctx, name)
	var failure *net.DNSError
	z.mu.Lock()
	defer z.mu.Unlock()
	if err == nil || errors.As(err, &failure) && failure.IsNotFound {
		z.known = map[string]string{}
	}
	for _, text := range texts {
		host, zone, ok := strings.Cut(text, " zone=")
		if ok && CheckZone(zone) == nil {
			z.known[strings.ToLower(strings.TrimSuffix(host, "."))] = zone
		}
	}
	for i := range servers {
		host, _, _ := net.SplitHostPort(servers[i].Address) // net.JoinHostPort made it
		servers[i].Zone = z.known[strings.ToLower(host)]
	}
}

// checkOrdinals reports a number that is too high, if all servers have numbers.
func checkOrdinals(name string, servers []Server) error {
	if slices.ContainsFunc(servers, func(s Server) bool { return s.Number == unknownNumber }) {
		return nil
	}
	for _, s := range servers {
		if s.Number > MaxNumber {
			return &NumberError{Source: "SRV record of " + name + " for " + s.Address, Number: s.Number, Limit: MaxNumber + 1}
		}
	}
	return nil
}

// Ordinal returns the number at the end of a host name's first label, as in "be-7" or
// "be-7.search.svc", the names of a StatefulSet's pods. It is not ok if there is none or
// it is above MaxNumber.
func Ordinal(host string) (number int, ok bool) {
	if number = ordinalOr(host, unknownNumber); number == unknownNumber || number > MaxNumber {
		return 0, false
	}
	return number, true
}

func ordinalOr(host string, other int) int {
	label, _, _ := strings.Cut(host, ".")
	i := strings.LastIndexByte(label, '-')
	number, err := strconv.Atoi(label[i+1:])
	if i <= 0 || err != nil || number < 0 || label[i+1] == '+' {
		return other
	}
	return number
}

// unknownNumber is the number of a server that the watcher has to number.
const unknownNumber = -1

type dns struct {
	interval time.Duration
	resolver *net.Resolver
	lookup   func(context.Context, *net.Resolver) ([]Server, error)
}

func newDNS(opts *DNSOptions, lookup func(context.Context, *net.Resolver) ([]Server, error)) Source {
	d := dns{interval: DefaultDNSInterval, resolver: strictResolver, lookup: lookup}
	if opts != nil && opts.Interval > 0 {
		d.interval = opts.Interval
	}
	if opts != nil && opts.Resolver != nil {
		d.resolver = opts.Resolver
	}
	return d
}

// strictResolver is the default Resolver.
var strictResolver = &net.Resolver{StrictErrors: true}

var errNoServers = errors.New("the name has no servers")

// Watch reports the set when a query's answer has changed.
func (d dns) Watch(ctx context.Context, update func(Snapshot)) error {
	ticker := time.NewTicker(d.interval)
	defer ticker.Stop()
	var last Snapshot
	var tooHigh *NumberError
	for known := false; ; {
		servers, err := d.lookup(ctx, d.resolver)
		if err == nil && len(servers) == 0 {
			err = errNoServers
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &tooHigh):
			return err // permanent: let the pool report it each time
		case err != nil && !known:
			return fmt.Errorf("discovery: %w", err)
		case err == nil:
			snapshot := number(servers, last.Servers)
			if !known || !last.Equal(snapshot) {
				known, last = true, snapshot
				update(snapshot)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// number returns a snapshot of servers, which are sorted by address. Their numbers are
// used only if all servers have different ones.
func number(servers, before []Server) Snapshot {
	own := map[int]bool{}
	for _, server := range servers {
		if server.Number != unknownNumber {
			own[server.Number] = true
		}
	}
	if len(own) < len(servers) {
		assign(servers, before)
	}
	s := Snapshot{Servers: servers, Self: -1}
	for _, server := range servers {
		s.Numbers = max(s.Numbers, server.Number+1)
	}
	return s
}

// assign gives servers their previous numbers, and new servers the lowest free ones.
func assign(servers, before []Server) {
	had := map[string]int{}
	for _, server := range before {
		had[server.Address] = server.Number
	}
	taken := map[int]bool{}
	for i := range servers {
		number, known := had[servers[i].Address]
		if !known {
			number = unknownNumber
		}
		servers[i].Number = number
		taken[number] = true
	}
	free := 0
	for i := range servers {
		if servers[i].Number != unknownNumber {
			continue
		}
		for taken[free] {
			free++
		}
		servers[i].Number = free
		free++
	}
}
