package boxcar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
)

// serverFlags holds the flags that select the servers, the credentials and the timeout.
type serverFlags struct {
	servers  []string
	zone     string
	timeout  time.Duration
	security security
}

// addFlags adds the flags; about describes the timeout.
func (r *serverFlags) addFlags(flags *pflag.FlagSet, timeout time.Duration, about string) {
	flags.StringSliceVar(&r.servers, "servers", []string{"127.0.0.1:7070"}, "addresses of the servers, comma-separated; or file:PATH, "+
		"pattern:COUNT:ADDRESS with %d for the number, dns:HOST:PORT, srv:NAME, etcd://HOST:PORT/PREFIX, gossip://HOST:PORT")
	flags.DurationVar(&r.timeout, "timeout", timeout, about)
	r.security.addFlags(flags)
}

// addZoneFlag adds --zone, for commands that choose among the servers.
func (r *serverFlags) addZoneFlag(flags *pflag.FlagSet) {
	flags.StringVar(&r.zone, "zone", "", "zone of this client: the servers of this zone are used first; empty: unknown")
}

// check reports all invalid flags.
func (r *serverFlags) check() error {
	var problems []error
	if len(r.servers) == 0 {
		problems = append(problems, cli.Usagef("--servers is empty; write HOST:PORT, or omit it for 127.0.0.1:7070"))
	} else if _, err := byname.Parse(joined(r.servers), slog.New(slog.DiscardHandler)); err != nil {
		problems = append(problems, cli.Usagef("--servers: %w", err))
	}
	if err := discovery.CheckZone(r.zone); err != nil {
		problems = append(problems, cli.Usagef("--zone: %w", err))
	}
	if r.timeout <= 0 {
		problems = append(problems, cli.Usagef("--timeout %s: must be more than 0", r.timeout))
	}
	return errors.Join(append(problems, r.security.check())...)
}

// joined undoes the splitting of the flag: a target may contain commas.
func joined(servers []string) string { return strings.Join(servers, ",") }

// addresses returns the current addresses of the servers, for a command that contacts each
// of them.
func (r *serverFlags) addresses(ctx context.Context, env *cli.Env) (addresses []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	list, err := byname.First(ctx, joined(r.servers), env.Log)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		addresses = append(addresses, s.Address)
	}
	return addresses, nil
}

// newPool returns a pool of some servers.
func (r *serverFlags) newPool(servers []string, o *boxcarrpc.PoolOptions) (*boxcarrpc.Pool, error) {
	if err := r.security.apply(o); err != nil {
		return nil, err
	}
	o.Zone = r.zone
	source, err := byname.Parse(joined(servers), o.Logger)
	if err != nil {
		return nil, err
	}
	pool, err := boxcarrpc.NewPool(source, o)
	if errors.Is(err, boxcarrpc.ErrPlainText) {
		return nil, r.plainText(servers)
	}
	return pool, err
}

// plainText refuses servers on other hosts in plain text, unless the flags allow it.
func (r *serverFlags) plainText(servers []string) error {
	if r.security.tokenFile != "" {
		return cli.Usagef("--servers %s: refusing to send a token to another host in plain text; give --tls or --tls-ca", joined(servers))
	}
	return cli.Usagef("--servers %s: refusing plain text to another host; give --tls or --tls-ca, or --insecure if this is intended", joined(servers))
}

// reasonOf returns the reason of an ErrNoServer: the server and its error.
func reasonOf(err error) string {
	return strings.TrimPrefix(err.Error(), boxcarrpc.ErrNoServer.Error()+": ")
}

// serverPoll is how often a command checks whether a server has answered its pool.
const serverPoll = 2 * time.Millisecond

// await returns when arrived holds for the statistics of a pool, or with an error that has
// the reason. It waits at most --timeout, and not if all servers are draining or do not
// speak Boxcar.
func (r *serverFlags) await(ctx context.Context, pool *boxcarrpc.Pool, arrived func(boxcarrpc.PoolStats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for !arrived(pool.Stats()) {
		if err := pool.NoServerReason(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return pool.WaitReady(ctx) // returns the reason as its error
		case <-time.After(serverPoll):
		}
	}
	return nil
}

// Conditions for await.
func hasSlot(s boxcarrpc.PoolStats) bool       { return s.Slots > 0 }
func hasConnection(s boxcarrpc.PoolStats) bool { return s.Transports > 0 }

// explain converts the error of a call to servers to a message for the user.
func (r *serverFlags) explain(servers []string, err error) error {
	switch {
	case errors.Is(err, boxcarrpc.ErrDraining):
		return fmt.Errorf("no server of %v gives out slots: %s; use other servers, or run boxcar undrain", servers, reasonOf(err))
	case errors.Is(err, boxcarrpc.ErrNotBoxcar):
		return fmt.Errorf("no server of %v speaks Boxcar: %s; use the address of docserviced --boxcar", servers, reasonOf(err))
	case errors.Is(err, boxcarrpc.ErrPlainText):
		return r.plainText(servers)
	case errors.Is(err, boxcarrpc.ErrNoServer) && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no server of %v can be reached; is one running there, and serving Boxcar? %s", servers, reasonOf(err))
	case errors.Is(err, boxcarrpc.ErrNoServer):
		return fmt.Errorf("no server of %v answered within %s; is one running there, and serving Boxcar? %s", servers, r.timeout, reasonOf(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s; use a longer --timeout", r.timeout)
	}
	return err
}
