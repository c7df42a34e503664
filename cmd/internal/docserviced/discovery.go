package docserviced

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
	"docstore/internal/contact"
)

// maxWeight is the maximum capacity of a server.
const maxWeight = 1_000_000

// registration holds the flags of service discovery.
type registration struct {
	discovery string
	advertise string
	weight    float64
	zone      string // of this server and of its clients
}

func (e *registration) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&e.discovery, "discovery", "", "where to register this server once it is ready: "+
		"etcd://HOST:PORT[,...]/PREFIX[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE], "+
		"or gossip://HOST:PORT[,...][?bind=HOST:PORT&key-file=FILE]; empty: nowhere")
	flags.StringVar(&e.advertise, "advertise", "", "address to register; empty: that of --boxcar, with the host name if it has none")
	flags.Float64Var(&e.weight, "weight", 1, "capacity of this server relative to the others")
	flags.StringVar(&e.zone, "zone", "", "zone or rack of this server: clients use the servers of their zone first; with --column, no row has servers of two zones; empty: unknown")
}

func (e *registration) check(column bool) error {
	var problems []error
	if e.discovery == "" && e.advertise != "" && !column {
		problems = append(problems, cli.Usagef("--advertise needs --discovery or --column; give both"))
	}
	if !(e.weight > 0 && e.weight <= maxWeight) {
		problems = append(problems, cli.Usagef("--weight %v: must be more than 0 and at most %d", e.weight, maxWeight))
	}
	if err := discovery.CheckZone(e.zone); err != nil {
		problems = append(problems, cli.Usagef("--zone: %w", err))
	}
	if e.discovery != "" {
		if err := byname.CanRegister(e.discovery); err != nil {
			problems = append(problems, cli.Usagef("--discovery %w", err))
		}
	}
	return errors.Join(problems...)
}

// register registers the server as soon as it is ready, until leave is called, which waits
// until it is unregistered.
func (d *process) register(e registration) (leave func()) {
	if e.discovery == "" {
		return func() {}
	}
	return d.Register(e.advertise, func(address string) (io.Closer, error) {
		options := byname.Options{Logger: d.Logger()}
		if strings.HasPrefix(e.discovery, "etcd:") {
			etcd := contact.New("etcd", d.Logger().With("discovery", e.discovery))
			d.MeasureEtcd("discovery", etcd)
			options.Observe = etcd.Observe
		}
		entry, err := options.Register(e.discovery, discovery.Server{Address: address, Weight: e.weight, Zone: e.zone})
		if err != nil {
			return nil, fmt.Errorf("--discovery %s: %w", e.discovery, err)
		}
		d.Logger().Info("entered", "address", address, "discovery", e.discovery)
		return entry, nil
	})
}
