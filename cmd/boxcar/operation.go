package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/internal/cli"
)

// operation is the flags of a command that asks servers about themselves.
type operation struct {
	servers  []string
	timeout  time.Duration
	security security
}

func (o *operation) addFlags(command *cobra.Command, timeout time.Duration, about string) {
	addServers(command.Flags(), &o.servers)
	command.Flags().DurationVar(&o.timeout, "timeout", timeout, about)
	o.security.addFlags(command.Flags())
}

// check completes the flags, or says what is wrong with them.
func (o *operation) check(ctx context.Context, env *cli.Env) (err error) {
	switch {
	case len(o.servers) == 0:
		return cli.Usagef("--servers is empty")
	case o.timeout <= 0:
		return cli.Usagef("--timeout %s: it must be over 0", o.timeout)
	}
	o.servers, err = addressesOf(ctx, env, o.servers, o.timeout)
	return err
}

// ask opens the stream of a tool on one server and returns the board that it
// answers with.
func (o *operation) ask(ctx context.Context, env *cli.Env, server, method string) (b boxcarrpc.Board, err error) {
	pool, err := o.security.newPool([]string{server}, &boxcarrpc.PoolOptions{Size: 1, Logger: env.Log})
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	stream, err := pool.Stream(ctx, method, nil)
	if err != nil {
		return b, o.explain(server, err)
	}
	defer stream.Close()
	answer, err := stream.Receive(nil)
	if err != nil {
		return b, o.explain(server, err)
	}
	if err := json.Unmarshal(answer, &b); err != nil {
		return b, fmt.Errorf("the board of %s: %w; is it of another version?", server, err)
	}
	return b, nil
}

// explain says what a failed question means to the person who asked.
func (o *operation) explain(server string, err error) error {
	c := connection{servers: []string{server}, timeout: o.timeout}
	return c.explain(err)
}
