package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"docstore/boxcarrpc/discovery"
)

// Defaults of Options.
const (
	DefaultRejoinInterval = 10 * time.Second
	DefaultPort           = 7946
)

// A Kind is what a member is to the others.
type Kind string

// The kinds. Backends and frontends have numbers, each of their own.
const (
	Observer Kind = "observer"
	Backend  Kind = "backend"
	Frontend Kind = "frontend"
)

// Options are those of a Member. The zero value of each field, and a nil *Options,
// mean the default.
type Options struct {
	// Kind is what the member is. The default is Observer.
	Kind Kind
	// Server is what a Backend tells of itself; its number is not looked at.
	Server discovery.Server
	// Bind is the host and port to gossip on, UDP and TCP; others must reach this
	// member there. Port 0 takes any. The default is the address from which the
	// first seed is reached, with port 7946, or any for an Observer.
	Bind string
	// KeyFile has what is told encrypted with the first of its keys, and nobody heard who
	// has none of them: keys of 16, 24 or 32 bytes in base64, one on a line. It is read
	// again every 5 s; a key that has gone from it is heard until the member leaves.
	// The default is plain text.
	KeyFile string
	// RejoinInterval is how often a member that is not heard of is tried. The
	// default is 10 s.
	RejoinInterval time.Duration
	// Configure changes memberlist's own settings, which are those for a local
	// network.
	Configure func(*memberlist.Config)
	// Logger gets numbers that are gained and lost. The default discards it.
	Logger *slog.Logger
}

func check(target string, opts *Options) (o Options, seeds []string, err error) {
	if opts != nil {
		o = *opts
	}
	if o.Kind == "" {
		o.Kind = Observer
	}
	if o.RejoinInterval <= 0 {
		o.RejoinInterval = DefaultRejoinInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if seeds, err = parse(target, &o); err != nil {
		return o, nil, err
	}
	switch {
	case o.Kind != Observer && o.Kind != Backend && o.Kind != Frontend:
		return o, nil, fmt.Errorf("gossip: there is no kind %q", o.Kind)
	case (o.Kind == Backend) != (o.Server.Address != ""):
		return o, nil, errors.New("gossip: a backend, and nobody else, has the address of a server")
	case !(o.Server.Weight >= 0 && o.Server.Weight < 1e300):
		return o, nil, fmt.Errorf("gossip: a weight of %v: it must be at least 0", o.Server.Weight)
	}
	return o, seeds, nil
}

// parse reads a target; what it says goes before the options.
func parse(target string, o *Options) (seeds []string, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	query := u.Query()
	for name, option := range map[string]*string{"bind": &o.Bind, "key-file": &o.KeyFile} {
		if query.Has(name) {
			if *option = query.Get(name); *option == "" {
				return nil, fmt.Errorf("gossip: %s: %s is empty: give it a value or leave it out", u.Redacted(), name)
			}
			query.Del(name)
		}
	}
	if u.Scheme != "gossip" || u.Host == "" || strings.Trim(u.Path, "/") != "" || len(query) > 0 || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("gossip: %s: want gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT][&key-file=FILE]", u.Redacted())
	}
	return strings.Split(u.Host, ","), nil
}

// Check reports what is wrong with a target or with the file of keys that it names.
func Check(target string) error {
	var o Options
	if _, err := parse(target, &o); err != nil || o.KeyFile == "" {
		return err
	}
	_, err := readKeys(o.KeyFile)
	return err
}

// bindTo is the address to bind.
func bindTo(o Options, seed string) (host string, port int, err error) {
	bind := o.Bind
	if bind == "" {
		// No packet is sent by this.
		probe, err := net.Dial("udp", seed)
		if err != nil {
			return "", 0, fmt.Errorf("gossip: say where to bind: %w", err)
		}
		host, _, _ := net.SplitHostPort(probe.LocalAddr().String())
		_ = probe.Close() // nothing was written
		if o.Kind == Observer {
			return host, 0, nil
		}
		return host, DefaultPort, nil
	}
	host, text, err := net.SplitHostPort(bind)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("gossip: the address to bind, %s: %w", bind, err)
	}
	return host, port, nil
}
