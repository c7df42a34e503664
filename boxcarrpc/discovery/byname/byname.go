// Package byname makes sources of servers from what people write on a command line,
// of every kind that there is: a program that imports it links them all.
//
//	10.0.0.1:7070,10.0.0.2:7070         these, numbered in this order
//	file:/etc/search/servers            a list that is watched
//	pattern:300:be-%d.search:7070       300 numbered names
//	dns:search.example.com:7070         the addresses of a name
//	srv:_boxcar._tcp.search.example.com the SRV records of a name
//	etcd://10.0.0.1:2379/search         who is entered in etcd; see etcd.Open for TLS and users
//	gossip://10.0.0.1:7946              the members of a cluster; see gossip.Join for keys
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

// Parse makes the source that a target names. The source connects to a registry
// when it is watched, and no longer than that.
func Parse(target string, logger *slog.Logger) (discovery.Source, error) {
	scheme, rest, _ := strings.Cut(target, ":")
	switch scheme {
	case "etcd":
		return registry{target, logger, watchEtcd}, etcd.Check(target)
	case "gossip":
		return registry{target, logger, watchGossip}, gossip.Check(target)
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
			return nil, fmt.Errorf("%q is no address; give HOST:PORT[,HOST:PORT...], or file:, pattern:, dns:, srv:, etcd:// or gossip://", address)
		}
		if err := discovery.CheckAddress(address); err != nil {
			return nil, err
		}
	}
	return discovery.Static(addresses...), nil
}

func nonEmpty(target, rest string) error {
	if rest == "" {
		return fmt.Errorf("%s names nothing", target)
	}
	return nil
}

// checkName checks what a target has behind "dns:".
func checkName(target, rest string) error {
	if err := discovery.CheckAddress(rest); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return nil
}

// onePlace is a format with one place for a number.
var onePlace = regexp.MustCompile(`^[^%]*%(0[1-9])?d[^%]*$`)

func parsePattern(target, rest string) (discovery.Source, error) {
	count, format, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || !onePlace.MatchString(format) {
		return nil, fmt.Errorf("%s: want pattern:COUNT:ADDRESS with one %%d for the number, or %%03d for as many digits, as in pattern:300:be-%%d.search:7070", target)
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

// First returns the servers that a target names at present. It waits within ctx
// for a registry, but not for servers.
func First(ctx context.Context, target string, logger *slog.Logger) (servers []discovery.Server, err error) {
	source, err := Parse(target, logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known := false
	err = source.Watch(ctx, func(s discovery.Snapshot) {
		// A gossiper hears of nobody at first.
		if known = known || len(s.Servers) > 0; known && servers == nil {
			servers = s.Servers
			cancel()
		}
	})
	if known {
		return servers, nil
	}
	return nil, fmt.Errorf("%s tells of no servers: %w", target, err)
}

// A registry is a source that connects when it is watched.
type registry struct {
	target string
	logger *slog.Logger
	watch  func(ctx context.Context, r registry, update func(discovery.Snapshot)) error
}

func (r registry) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	return r.watch(ctx, r, update)
}

func watchEtcd(ctx context.Context, r registry, update func(discovery.Snapshot)) error {
	opened, err := etcd.Open(r.target, &etcd.Options{Logger: r.logger})
	if err != nil {
		return err
	}
	err = opened.Source(nil).Watch(ctx, update)
	return errors.Join(err, opened.Close())
}

func watchGossip(ctx context.Context, r registry, update func(discovery.Snapshot)) error {
	member, err := gossip.Join(r.target, &gossip.Options{Logger: r.logger})
	if err != nil {
		return err
	}
	err = member.Watch(ctx, update)
	return errors.Join(err, member.Close())
}

// CanRegister reports what is wrong with a target to enter servers at.
func CanRegister(target string) error {
	switch scheme, _, _ := strings.Cut(target, ":"); scheme {
	case "etcd":
		return etcd.Check(target)
	case "gossip":
		return gossip.Check(target)
	}
	return fmt.Errorf("%q: servers are entered at etcd://HOST:PORT/PREFIX or gossip://HOST:PORT", target)
}

// Register enters a server, which keeps a number until the closer is closed. It
// waits for nothing: what is not to be had now is tried in the background.
func Register(target string, server discovery.Server, logger *slog.Logger) (io.Closer, error) {
	if err := CanRegister(target); err != nil {
		return nil, err
	}
	if strings.HasPrefix(target, "gossip:") {
		return gossip.Join(target, &gossip.Options{Kind: gossip.Backend, Server: server, Logger: logger})
	}
	opened, err := etcd.Open(target, &etcd.Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	if _, err := opened.Backend(server); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil // which gives the number back
}
