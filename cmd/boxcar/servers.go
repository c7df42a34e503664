package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc/discovery/byname"
	"docstore/internal/cli"
)

// addServers adds the flag that says whom to ask.
func addServers(flags *pflag.FlagSet, servers *[]string) {
	flags.StringSliceVar(servers, "servers", []string{"127.0.0.1:7070"}, "addresses of the servers, with commas between them; or file:PATH, "+
		"pattern:COUNT:ADDRESS with %d for the number, dns:HOST:PORT, srv:NAME, etcd://HOST:PORT/PREFIX, gossip://HOST:PORT")
}

// joined undoes what the flag has parted: a target may have commas of its own.
func joined(servers []string) string { return strings.Join(servers, ",") }

// addressesOf lists the servers that the flag names at present, for a command that
// asks each of them.
func addressesOf(ctx context.Context, env *cli.Env, servers []string, timeout time.Duration) (addresses []string, err error) {
	if _, err := byname.Parse(joined(servers), env.Log); err != nil {
		return nil, cli.Usagef("--servers: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := byname.First(ctx, joined(servers), env.Log)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		addresses = append(addresses, s.Address)
	}
	return addresses, nil
}
