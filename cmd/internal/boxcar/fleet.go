package boxcar

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server/fleetview"
)

// fleetFlags holds the flags of the command.
type fleetFlags struct {
	shards            shardFlags
	collection        string
	interval, timeout time.Duration
	once, json        bool
	screen            screen
}

func newFleet(env *cli.Env) *cobra.Command {
	f := fleetFlags{screen: screen{size: terminalSize}}
	command := &cobra.Command{
		Use:   "fleet --etcd E --collection NAME",
		Short: "Show the servers and moves of a sharded collection, continuously",
		Long: `Fleet shows the columns of a sharded collection by rows until Ctrl-C: for each
server its state, the shards that it is ready for, the bytes that it has
fetched, and the manifest that it serves; the numbers that no server holds; and
the moves in progress with their rate over the last ten seconds.

  ready     the server answers for all shards of its column
  lagging   a shard serves an older manifest than its target
  fetching, indexing, faulted ...    why a shard is not ready, as in /readyz
  free      no server holds the number

With --once or --json, or if standard output is not a terminal, fleet shows the
state once, after an interval in which it measures rates. It uses only etcd. The
servers show the same at /fleet of their --http.`,
		Example: `  boxcar fleet --etcd 10.0.0.1:2379 --collection jobs
  boxcar fleet --etcd 10.0.0.1:2379 --collection jobs --json | jq .moves`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	f.shards.addFlag(flags)
	addCollection(command, &f.collection, "name of the collection")
	if err := command.MarkFlagRequired("etcd"); err != nil {
		panic(err) // the flag was just defined
	}
	flags.DurationVar(&f.interval, "interval", time.Second, "update interval")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "timeout of etcd")
	flags.BoolVar(&f.once, "once", false, "show one interval and exit")
	flags.BoolVar(&f.json, "json", false, "write the state as JSON and exit")
	return command
}

// check reports all invalid flags.
func (f *fleetFlags) check() error {
	var problems []error
	if f.interval < minTopInterval {
		problems = append(problems, cli.Usagef("--interval %s: must be at least %s", f.interval, minTopInterval))
	}
	if f.timeout <= 0 {
		problems = append(problems, cli.Usagef("--timeout %s: must be more than 0", f.timeout))
	}
	return errors.Join(problems...)
}

func (f *fleetFlags) run(ctx context.Context, env *cli.Env) (err error) {
	store, err := f.shards.openStore(ctx, env, f.collection, f.timeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, _, ok := f.screen.size(); !ok || f.once || f.json {
		return f.showOnce(ctx, env, store)
	}
	var rates fleet.Rates
	return f.screen.run(ctx, env, f.interval, func() []string {
		state, err := fleet.Read(ctx, store)
		if err != nil {
			return []string{f.collection + ": " + err.Error()} // it is read again
		}
		rates.Add(state)
		return append(fleetview.Lines(state), "", state.Time.Format(time.TimeOnly))
	})
}

// showOnce shows the state after an interval, for the rates of moves.
func (f *fleetFlags) showOnce(ctx context.Context, env *cli.Env, store *etcdmap.Store) error {
	state, err := fleet.ReadWithRates(ctx, store, f.interval)
	if err != nil {
		return err
	}
	if f.json {
		return env.PrintJSON(state)
	}
	out := cli.NewOutput(env.Stdout)
	for _, line := range fleetview.Lines(state) {
		out.Printf("%s\n", line)
	}
	return out.Flush()
}
