// Package byname parses targets on the command line into sources of servers. It supports
// all kinds of source, and a program that imports it links all of them.
//
//	10.0.0.1:7070,10.0.0.2:7070         addresses, numbered in this order
//	file:/etc/search/servers            a watched list: see discovery.File
//	pattern:300:be-%d.search:7070       300 numbered addresses
//	dns:search.example.com:7070         the addresses of a name
//	srv:_boxcar._tcp.search.example.com the SRV records of a name
//	etcd://10.0.0.1:2379/search         servers registered in etcd: see etcd.Open
//	gossip://10.0.0.1:7946              members of a cluster: see gossip.Join
package byname

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/etcd"
	"docstore/boxcarrpc/discovery/gossip"
)

// Options configure the registries of targets. Zero values are the defaults.
type Options struct {
	Logger  *slog.Logger // the default discards
	Observe func(error)  // that of etcd.Options; the default is none
}

// Parse returns the source of a target. The source connects to a registry only while it
// is watched.
func Parse(target string, logger *slog.Logger) (discovery.Source, error) {
	return Options{Logger: logger}.Parse(target)
}

// Parse is Parse with options.
func (o Options) Parse(target string) (discovery.Source, error) {
	scheme, rest, _ := strings.Cut(target, ":")
	switch scheme {
	case "etcd":
		return registry{target, o, watchEtcd}, etcd.Check(target)
	case "gossip":
		return registry{target, o, watchGossip}, gossip.Check(target)
	case "file":
		return discovery.File(rest), nonEmpty(target, rest)
	case "dns":
		return discovery.DNS(rest, nil), checkName(target, rest)
	case "srv":
		return discovery.SRV(rest, nil), nonEmpty(target, rest)
	case "pattern":
		return parsePattern(target, rest)
	}
	addresses := strings.Split(target, ",")
	for _, address := range addresses {
		if address == "" || strings.Contains(address, "/") {
			return nil, fmt.Errorf("%q is not an address; use HOST:PORT[,HOST:PORT...], or file:, pattern:, dns:, srv:, etcd:// or gossip://", address)
		}
		if err := discovery.CheckAddress(address); err != nil {
			return nil, err
		}
	}
	return discovery.Static(addresses...), nil
}

func nonEmpty(target, rest string) error {
	if rest == "" {
		return fmt.Errorf("%s: the name is missing", target)
	}
	return nil
}

// checkName checks the part of a target after "dns:".
func checkName(target, rest string) error {
	if err := discovery.CheckAddress(rest); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return nil
}

// onePlace matches a format with one verb for a number.
var onePlace = regexp.MustCompile(`^[^%]*%(0[1-9])?d[^%]*$`)

func parsePattern(target, rest string) (discovery.Source, error) {
	count, format, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || !onePlace.MatchString(format) {
		return nil, fmt.Errorf("%s: want pattern:COUNT:ADDRESS with one %%d for the number, or %%03d for three digits, as in pattern:300:be-%%d.search:7070", target)
	}
	if n > discovery.MaxNumber+1 {
		return nil, &discovery.NumberError{Source: target, Number: n - 1, Limit: discovery.MaxNumber + 1}
	}
	for _, number := range []int{0, n - 1} { // the number may be part of the port
		if err := discovery.CheckAddress(fmt.Sprintf(format, number)); err != nil {
			return nil, fmt.Errorf("%s: %w", target, err)
		}
	}
	return discovery.Pattern(format, n), nil
}

// First returns the current servers of a target. It waits for a registry until ctx ends,
// but not for servers to appear.
func First(ctx context.Context, target string, logger *slog.Logger) (servers []discovery.Server, err error) {
	source, err := Parse(target, logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known := false
	err = source.Watch(ctx, func(s discovery.Snapshot) {
		// A gossip member does not know the others at first.
		if known = known || len(s.Servers) > 0; known && servers == nil {
			servers = s.Servers
			cancel()
		}
	})
	if known {
		return servers, nil
	}
	return nil, fmt.Errorf("%s: no servers found: %w", target, err)
}

// A registry is a source that connects while it is watched.
type registry struct {
	target  string
	options Options
	watch   func(ctx context.Context, r registry, update func(discovery.Snapshot)) error
}

func (r registry) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	return r.watch(ctx, r, update)
}

func watchEtcd(ctx context.Context, r registry, update func(discovery.Snapshot)) error {
	opened, err := etcd.Open(r.target, &etcd.Options{Logger: r.options.Logger, Observe: r.options.Observe})
	if err != nil {
		return err
	}
	err = opened.Source(nil).Watch(ctx, update)
	return errors.Join(err, opened.Close())
}

func watchGossip(ctx context.Context, r registry, update func(discovery.Snapshot)) error {
	member, err := gossip.Join(r.target, &gossip.Options{Logger: r.options.Logger})
	if err != nil {
		return err
	}
	err = member.Watch(ctx, update)
	return errors.Join(err, member.Close())
}

// CanRegister returns an error if servers cannot be registered at a target.
func CanRegister(target string) error {
	switch scheme, _, _ := strings.Cut(target, ":"); scheme {
	case "etcd":
		return etcd.Check(target)
	case "gossip":
		return gossip.Check(target)
	}
	return fmt.Errorf("%q: want etcd://HOST:PORT/PREFIX or gossip://HOST:PORT", target)
}

// Register registers a server, which holds a number until the closer is closed. It
// returns at once; if the registry is unavailable, it retries in the background.
func Register(target string, server discovery.Server, logger *slog.Logger) (io.Closer, error) {
	return Options{Logger: logger}.Register(target, server)
}

// Register is Register with options.
func (o Options) Register(target string, server discovery.Server) (io.Closer, error) {
	if err := CanRegister(target); err != nil {
		return nil, err
	}
	if strings.HasPrefix(target, "gossip:") {
		return gossip.Join(target, &gossip.Options{Kind: gossip.Backend, Server: server, Logger: o.Logger})
	}
	opened, err := etcd.Open(target, &etcd.Options{Logger: o.Logger, Observe: o.Observe})
	if err != nil {
		return nil, err
	}
	if _, err := opened.Backend(server); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil // its Close releases the number
}
