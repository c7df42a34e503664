package boxcar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

// drainPoll is how often a draining server is polled.
const drainPoll = 100 * time.Millisecond

func newDrain(env *cli.Env) *cobra.Command {
	var o operation
	command := &cobra.Command{
		Use:   "drain --servers A,B,...",
		Short: "Make clients leave servers",
		Long: `Drain makes servers stop granting slots. Their clients finish the requests in
flight and move to other servers. The servers keep running and keep their
connections until undrain or a shutdown. Drain waits until each server has no
slots granted and no requests in flight, and fails if that takes longer than
--timeout; the servers then remain draining.

If clients of a docserviced authenticate, only its --operators may drain it;
otherwise only clients on the same host may.`,
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
			// Drain all servers first, so that clients do not move from one to the next.
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
	o.addFlags(command, 30*time.Second, "timeout of each response, and of the requests in flight")
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
			return fmt.Errorf("%s is no longer draining; was it undrained or restarted?", server)
		case slots == 0 && b.InFlight == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s still has %s given out and %s in flight after %s, and is still draining; see boxcar slots", server,
				units.FormatCountOf(int64(slots), "slot", "slots"), units.FormatCountOf(int64(b.InFlight), "request", "requests"), o.timeout)
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
		Short: "Make clients return to drained servers",
		Long: `Undrain ends drain: the servers grant slots again and notify their clients,
each of which returns at a random time within half a second.

If clients of a docserviced authenticate, only its --operators may undrain it;
otherwise only clients on the same host may.`,
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
	o.addFlags(command, 5*time.Second, "timeout of each response")
	return command
}
