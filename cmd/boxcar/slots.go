package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/cli"
)

func newSlots(env *cli.Env) *cobra.Command {
	var servers []string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "slots --servers A,B,...",
		Short: "Show the slots that servers have given out",
		Long: `Slots asks each server for its board: every slot that is given out, the client
that holds it, for how long, and how many requests it has carried. The slot that
the question itself came on is among them.`,
		Example: `  boxcar slots
  boxcar slots --servers 10.0.0.1:7070,10.0.0.2:7070`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			switch {
			case len(servers) == 0:
				return cli.Usagef("--servers is empty")
			case timeout <= 0:
				return cli.Usagef("--timeout %s: it must be over 0", timeout)
			}
			out := cli.NewOutput(env.Stdout)
			for _, server := range servers {
				board, err := askBoard(command.Context(), env, server, timeout)
				if err != nil {
					return errors.Join(out.Flush(), err)
				}
				if err := printBoard(out, server, board); err != nil {
					return err
				}
			}
			return out.Flush()
		},
	}
	command.Flags().StringSliceVar(&servers, "servers", []string{"127.0.0.1:7070"}, "addresses of the servers, with commas between them")
	command.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "longest to wait for an answer of each")
	return command
}

// askBoard gets the board of one server.
func askBoard(ctx context.Context, env *cli.Env, server string, timeout time.Duration) (b boxcarrpc.Board, err error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(server), &boxcarrpc.PoolOptions{Size: 1, Logger: env.Log})
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := pool.Call(ctx, boxcarrpc.MethodBoard, nil, nil)
	if err != nil {
		c := connection{servers: []string{server}, timeout: timeout}
		return b, c.explain(err)
	}
	if err := json.Unmarshal(answer, &b); err != nil {
		return b, fmt.Errorf("the board of %s: %w; is it of another version?", server, err)
	}
	return b, nil
}

func printBoard(out *cli.Output, server string, b boxcarrpc.Board) error {
	out.Printf("%s (%s): %d slots, lowest free %d, %d requests in flight, %d of them streams\n",
		server, b.Name, len(b.Slots)+b.More, b.LowestFree, b.InFlight, b.Streams)
	table := tabwriter.NewWriter(writerOf{out}, 0, 0, 2, ' ', 0)
	rows := []byte("slot\tclient\taddress\tage\trequests\tstate\n")
	for _, s := range b.Slots {
		state := "free"
		if s.Busy {
			state = "busy"
		}
		rows = fmt.Appendf(rows, "%d\t%s\t%s\t%s\t%d\t%s\n", s.Number, s.Client, s.Address, s.Age.Truncate(time.Second), s.Requests, state)
	}
	if b.More > 0 {
		rows = fmt.Appendf(rows, "and %d more\n", b.More)
	}
	_, err := table.Write(rows)
	return errors.Join(err, table.Flush())
}

// writerOf is an output that keeps its error, as a writer.
type writerOf struct{ out *cli.Output }

func (w writerOf) Write(p []byte) (int, error) {
	w.out.Write(p)
	return len(p), w.out.Err()
}
