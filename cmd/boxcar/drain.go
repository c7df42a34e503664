package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
)

// drainPoll is how often a server that is being drained is asked how far it is.
const drainPoll = 100 * time.Millisecond

func newDrain(env *cli.Env) *cobra.Command {
	var o operation
	command := &cobra.Command{
		Use:   "drain --servers A,B,...",
		Short: "Have the clients of servers go elsewhere",
		Long: `Drain tells servers to give out no more slots. Their clients hear of it, finish
what is in flight, and go to other servers; the servers go on, and keep their
connections, until undrain takes it back or they are ended. Drain waits until each
has no slot given out and no request in flight, and has failed if that takes
longer than --timeout; the servers then go on draining.

A docserviced whose clients prove who they are takes this from its --operators only;
any other, from its own host only.`,
		Example: `  boxcar drain
  boxcar drain --servers 127.0.0.1:7070 --timeout 5m`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			servers, err := o.addresses(command.Context(), env)
			if err != nil {
				return err
			}
			out := cli.NewOutput(env.Stdout)
			deadline := time.Now().Add(o.timeout)
			// All of them first: clients are not to go from one to the next.
			for _, server := range servers {
				if _, err := o.ask(command.Context(), env, server, boxcarrpc.MethodDrain); err != nil {
					return err
				}
			}
			for _, server := range servers {
				err := o.awaitDrained(command.Context(), env, server, deadline)
				if err != nil {
					return errors.Join(out.Flush(), err)
				}
				out.Printf("%s: drained\n", server)
			}
			return out.Flush()
		},
	}
	o.addFlags(command, 30*time.Second, "longest to wait for an answer of each, and for what is in flight")
	return command
}

// awaitDrained waits until a server is idle.
func (o *operation) awaitDrained(ctx context.Context, env *cli.Env, server string, deadline time.Time) error {
	for {
		b, err := o.ask(ctx, env, server, boxcarrpc.MethodBoard)
		switch slots := len(b.Slots) + b.More; {
		case err != nil:
			return err
		case !b.Draining:
			return fmt.Errorf("%s is not draining any more; was it undrained, or started again?", server)
		case slots == 0 && b.InFlight == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s still has %s given out and %s in flight after %s, and goes on draining; see boxcar slots", server,
				cli.FormatCountOf(int64(slots), "slot", "slots"), cli.FormatCountOf(int64(b.InFlight), "request", "requests"), o.timeout)
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newUndrain(env *cli.Env) *cobra.Command {
	var o operation
	command := &cobra.Command{
		Use:   "undrain --servers A,B,...",
		Short: "Have the clients of drained servers come back",
		Long: `Undrain takes drain back: the servers give out slots again and tell their clients,
each of which comes at a random moment within half a second.

A docserviced whose clients prove who they are takes this from its --operators only;
any other, from its own host only.`,
		Example: `  boxcar undrain
  boxcar undrain --servers 127.0.0.1:7070`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			servers, err := o.addresses(command.Context(), env)
			if err != nil {
				return err
			}
			out := cli.NewOutput(env.Stdout)
			for _, server := range servers {
				if _, err := o.ask(command.Context(), env, server, boxcarrpc.MethodUndrain); err != nil {
					return errors.Join(out.Flush(), err)
				}
				out.Printf("%s: gives out slots\n", server)
			}
			return out.Flush()
		},
	}
	o.addFlags(command, 5*time.Second, "longest to wait for an answer of each")
	return command
}
