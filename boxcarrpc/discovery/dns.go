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
	"time"
)

// DefaultDNSInterval is how often a name is looked up.
const DefaultDNSInterval = 30 * time.Second

// DNSOptions say how names are looked up; nil and zero fields are the defaults.
type DNSOptions struct {
	// Interval is the time between two lookups. The default is
	// DefaultDNSInterval: the resolver does not tell how long an answer holds.
	Interval time.Duration
	// Resolver looks names up. The default is the system's, with StrictErrors: if only
	// one of the two questions for A and AAAA is answered the lookup has failed, for
	// half of an answer would take servers out of the set.
	Resolver *net.Resolver
}

// DNS is the source of the servers behind a host name with a port, as in
// "search.example.com:7070": an address (A or AAAA) each.
//
// DNS knows no numbers. Each watcher gives its own, in the order of the
// addresses at first; a server keeps its number as long as it is listed, and a
// new one takes the lowest that is free. That serves subsetting by random or
// rendezvous, but no algorithm that needs frontends to agree.
//
// A lookup that fails or finds nothing changes nothing, except before the first
// that succeeds, where it ends Watch with its error.
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

// SRV is the source of the servers that the SRV records of a name list, as in
// "_boxcar._tcp.search.example.com", with their ports and weights; only those of
// the lowest priority value.
//
// Where all their host names end in numbers (see [Ordinal]), as those of a
// StatefulSet do, these are the servers' numbers, which all watchers agree on.
// Watch fails with a [NumberError] if one of these is over MaxNumber. Otherwise
// numbers, and failed lookups, are as with [DNS].
func SRV(name string, opts *DNSOptions) Source {
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
		slices.SortFunc(servers, func(a, b Server) int {
			return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(b.Weight, a.Weight))
		})
		// Two records that differ in their weights only are one server.
		return slices.CompactFunc(servers, func(a, b Server) bool { return a.Address == b.Address }), nil
	})
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

// Ordinal is the number at the end of a host name's first label, as in "be-7" or
// "be-7.search.svc": the number of a task of a StatefulSet. A number over MaxNumber
// is none.
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

// unknownNumber is that of a server which its watcher has to number.
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

// Watch reports the set when an answer differs from the one before.
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
			return err // it does not pass by itself, so the pool reports it each time
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

// number makes a snapshot of servers, sorted by address. Numbers of their own
// count only if all have one and no two the same.
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

// assign gives servers the numbers that they had before, and the lowest free
// ones to those that are new.
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
