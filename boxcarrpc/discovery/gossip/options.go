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

// A Kind is the role of a member.
type Kind string

// The kinds. Backends and frontends have separate sequences of numbers.
const (
	Observer Kind = "observer"
	Backend  Kind = "backend"
	Frontend Kind = "frontend"
)

// Options are the options of a Member. The zero value of each field, and a nil *Options,
// mean the default.
type Options struct {
	// Kind is the member's role. The default is Observer.
	Kind Kind
	// Server is the server of a Backend. Its Number is ignored.
	Server discovery.Server
	// Zone is the zone of a Frontend. The frontends of each zone have numbers from 0, for
	// subsets by zone. The default is the zone without a name.
	Zone string
	// Bind is the HOST:PORT for gossip, over UDP and TCP. Other members must be able to
	// reach it. Port 0 means any. The default is the local address of the route to the
	// first seed, with port 7946, or any port for an Observer.
	Bind string
	// KeyFile is the path of a file with keys of 16, 24 or 32 bytes in base64, one per
	// line. Messages are encrypted with the first key, and accepted with any of them.
	// The file is read again every 5 s; a removed key is accepted until the member
	// leaves. The default is plain text.
	KeyFile string
	// RejoinInterval is the interval at which the member tries to join missing members.
	// The default is 10 s.
	RejoinInterval time.Duration
	// Configure modifies memberlist's configuration, by default that for local
	// networks.
	Configure func(*memberlist.Config)
	// Logger gets gained and lost numbers. The default discards them.
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
		return o, nil, fmt.Errorf("gossip: unknown kind %q", o.Kind)
	case o.Kind == Backend && o.Server.Address == "":
		return o, nil, errors.New("gossip: backend without a server address")
	case o.Kind != Backend && o.Server.Address != "":
		return o, nil, fmt.Errorf("gossip: kind %q must not have a server address", o.Kind)
	case !(o.Server.Weight >= 0 && o.Server.Weight < 1e300):
		return o, nil, fmt.Errorf("gossip: weight %v: must be at least 0 and finite", o.Server.Weight)
	case o.Kind != Frontend && o.Zone != "":
		return o, nil, fmt.Errorf("gossip: kind %q with Zone %s: set Server.Zone for a backend", o.Kind, o.Zone)
	}
	if err := errors.Join(discovery.CheckZone(o.Server.Zone), discovery.CheckZone(o.Zone)); err != nil {
		return o, nil, fmt.Errorf("gossip: %w", err)
	}
	return o, seeds, nil
}

// parse parses a target. It overrides the options.
func parse(target string, o *Options) (seeds []string, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	query := u.Query()
	for name, option := range map[string]*string{"bind": &o.Bind, "key-file": &o.KeyFile} {
		if query.Has(name) {
			if *option = query.Get(name); *option == "" {
				return nil, fmt.Errorf("gossip: %s: %s is empty; set it or remove it", u.Redacted(), name)
			}
			query.Del(name)
		}
	}
	if u.Scheme != "gossip" || u.Host == "" || strings.Trim(u.Path, "/") != "" || len(query) > 0 || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("gossip: %s: want gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT][&key-file=FILE]", u.Redacted())
	}
	return strings.Split(u.Host, ","), nil
}

// Check returns an error if a target or its key file is invalid.
func Check(target string) error {
	var o Options
	if _, err := parse(target, &o); err != nil || o.KeyFile == "" {
		return err
	}
	_, err := readKeys(o.KeyFile)
	return err
}

// bindTo returns the address to bind.
func bindTo(o Options, seed string) (host string, port int, err error) {
	bind := o.Bind
	if bind == "" {
		// A UDP dial sends no packet.
		probe, err := net.Dial("udp", seed)
		if err != nil {
			return "", 0, fmt.Errorf("gossip: no route to seed %s; set the bind address: %w", seed, err)
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
		return "", 0, fmt.Errorf("gossip: bind address %s: %w", bind, err)
	}
	return host, port, nil
}
