package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
)

// reach is the flags that say which servers are spoken to, how, and for how long.
type reach struct {
	servers  []string
	timeout  time.Duration
	security security
}

// addFlags adds the flags; about tells what the timeout is of.
func (r *reach) addFlags(flags *pflag.FlagSet, timeout time.Duration, about string) {
	flags.StringSliceVar(&r.servers, "servers", []string{"127.0.0.1:7070"}, "addresses of the servers, with commas between them; or file:PATH, "+
		"pattern:COUNT:ADDRESS with %d for the number, dns:HOST:PORT, srv:NAME, etcd://HOST:PORT/PREFIX, gossip://HOST:PORT")
	flags.DurationVar(&r.timeout, "timeout", timeout, about)
	r.security.addFlags(flags)
}

// check reports all that is impossible in the flags.
func (r *reach) check() error {
	var problems []error
	if len(r.servers) == 0 {
		problems = append(problems, cli.Usagef("--servers is empty; write HOST:PORT, or leave it out for 127.0.0.1:7070"))
	} else if _, err := byname.Parse(joined(r.servers), slog.New(slog.DiscardHandler)); err != nil {
		problems = append(problems, cli.Usagef("--servers: %w", err))
	}
	if r.timeout <= 0 {
		problems = append(problems, cli.Usagef("--timeout %s: it must be over 0", r.timeout))
	}
	return errors.Join(append(problems, r.security.check())...)
}

// joined undoes what the flag has parted: a target may have commas of its own.
func joined(servers []string) string { return strings.Join(servers, ",") }

// addresses lists the servers that the flag names at present, for a command that asks
// each of them.
func (r *reach) addresses(ctx context.Context, env *cli.Env) (addresses []string, err error) {
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

// newPool makes a pool of some servers.
func (r *reach) newPool(servers []string, o *boxcarrpc.PoolOptions) (*boxcarrpc.Pool, error) {
	if err := r.security.apply(o); err != nil {
		return nil, err
	}
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

// plainText is the error of flags that do not allow a server on another host.
func (r *reach) plainText(servers []string) error {
	if r.security.tokenFile != "" {
		return cli.Usagef("--servers %s: a token is not sent to another host in plain text; give --tls or --tls-ca", joined(servers))
	}
	return cli.Usagef("--servers %s: another host is not spoken to in plain text; give --tls or --tls-ca, or --insecure if that is meant", joined(servers))
}

// reasonOf is the reason in an ErrNoServer: the server and its error.
func reasonOf(err error) string {
	return strings.TrimPrefix(err.Error(), boxcarrpc.ErrNoServer.Error()+": ")
}

// serverPoll is how often a command looks whether a server has answered its pool.
const serverPoll = 2 * time.Millisecond

// await returns once the servers of a pool have answered as arrived wants, or with an
// error that says why they have not. It waits no longer than --timeout, and not at all
// for servers that are draining or do not speak Boxcar.
func (r *reach) await(ctx context.Context, pool *boxcarrpc.Pool, arrived func(boxcarrpc.PoolStats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for !arrived(pool.Stats()) {
		if err := pool.NoServerReason(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return pool.WaitReady(ctx) // for its error, which has the reason
		case <-time.After(serverPoll):
		}
	}
	return nil
}

// What await waits for.
func hasSlot(s boxcarrpc.PoolStats) bool       { return s.Slots > 0 }
func hasConnection(s boxcarrpc.PoolStats) bool { return s.Transports > 0 }

// explain says what a failed call to some servers means to the person who made it.
func (r *reach) explain(servers []string, err error) error {
	switch {
	case errors.Is(err, boxcarrpc.ErrDraining):
		return fmt.Errorf("no server of %v gives out slots: %s; name other servers, or have it serve again with boxcar undrain", servers, reasonOf(err))
	case errors.Is(err, boxcarrpc.ErrNotBoxcar):
		return fmt.Errorf("no server of %v speaks Boxcar: %s; give the address that is docserviced's --boxcar", servers, reasonOf(err))
	case errors.Is(err, boxcarrpc.ErrPlainText):
		return r.plainText(servers)
	case errors.Is(err, boxcarrpc.ErrNoServer):
		return fmt.Errorf("no server of %v answered within %s; is one running there, and serving Boxcar? %s", servers, r.timeout, reasonOf(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s; give a longer --timeout", r.timeout)
	}
	return err
}
