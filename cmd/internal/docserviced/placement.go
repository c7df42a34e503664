package docserviced

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server/fleetview"
	"docstore/internal/units"
)

func newPlacement(env *cli.Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "placement",
		Short: "Show and change which column holds which shard",
		Long: `Placement shows and changes on which columns of servers the shards of a
collection are. It uses only etcd. A plan moves as few bytes as possible, and no
server exceeds its limit of bytes. It is applied by an operator: servers that
start, stop or die move nothing. The elected daemon starts the moves of an
applied plan, and each shard stays on its column until all servers of the next
one serve it.`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	command.AddCommand(newPlacementShow(env), newPlacementPlan(env))
	for _, administrative := range []*cobra.Command{
		newPlacementApply(env), newPlacementDrain(env), newPlacementUndrain(env), newPlacementPause(env, true), newPlacementPause(env, false),
	} {
		command.AddCommand(cli.Audit(env, administrative, ""))
	}
	return command
}

// placementFlags holds the flags of the commands of placement.
type placementFlags struct {
	etcd, collection string
	timeout          time.Duration
	json             bool
}

func (p *placementFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&p.etcd, "etcd", "", "etcd servers, as HOST:PORT,... or etcd://HOST:PORT,.../PREFIX[?ca=FILE&...]")
	flags.StringVar(&p.collection, "collection", "", "name of the collection")
	flags.DurationVar(&p.timeout, "timeout", 10*time.Second, "timeout of the command")
	flags.BoolVar(&p.json, "json", false, "write JSON")
	for _, name := range []string{"etcd", "collection"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was just defined
		}
	}
	command.PreRunE = func(*cobra.Command, []string) error { return p.check() }
}

func (p *placementFlags) check() error {
	if p.timeout <= 0 {
		return cli.Usagef("--timeout %s: must be more than 0", p.timeout)
	}
	return nil
}

// with calls fn with the placement of the collection, within the timeout.
func (p *placementFlags) with(ctx context.Context, env *cli.Env, fn func(context.Context, *etcdmap.Store) error) (err error) {
	store, err := etcdmap.Open(p.etcd, p.collection, &etcdmap.Options{Timeout: p.timeout, Logger: env.Log})
	if err != nil {
		return cli.Usagef("--etcd %s --collection %q: %w", p.etcd, p.collection, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	err = fn(ctx, store)
	switch {
	case errors.Is(err, etcdmap.ErrNoMap):
		return fmt.Errorf("collection %s has no placement in %s: the first daemon with --column makes it, from the announced manifest", p.collection, p.etcd)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("etcd at %s does not answer within %s; is it running there?", p.etcd, p.timeout)
	}
	return err
}

// print writes lines, or a value as JSON with --json.
func (p *placementFlags) print(env *cli.Env, value any, lines ...string) error {
	if p.json {
		return env.PrintJSON(value)
	}
	out := cli.NewOutput(env.Stdout)
	for _, line := range lines {
		out.Printf("%s\n", line)
	}
	return out.Flush()
}

// rateInterval is the time between the two reads with which show computes rates.
const rateInterval = time.Second

func newPlacementShow(env *cli.Env) *cobra.Command {
	var p placementFlags
	command := &cobra.Command{
		Use:   "show --etcd ENDPOINTS --collection NAME",
		Short: "Show the columns, their servers, and the moves in progress",
		Long: `Show writes the placement and its epoch, the elected placer, each column with
its shards and servers, the numbers that no server holds, and the moves in
progress. With moves it reads twice, a second apart, and writes their rates.
boxcar fleet shows the same continuously.`,
		Example: `  docserviced placement show --etcd 10.0.0.1:2379 --collection jobs`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
				f, err := fleet.ReadWithRates(ctx, store, rateInterval)
				if err != nil {
					return err
				}
				lines := fleetview.Lines(f)
				for _, c := range f.Columns {
					if len(c.Shards) > 0 {
						lines = append(lines, fmt.Sprintf("column %s holds shards %s: %s", c.Name, fleetview.Ranges(c.Shards), units.FormatBytes(c.Bytes)))
					}
				}
				return p.print(env, f, lines...)
			})
		},
	}
	p.addFlags(command)
	return command
}

// planLines describes a plan.
func planLines(p *fleet.Plan) []string {
	lines := []string{fmt.Sprintf("plan %s: %s of %s between columns, from epoch %d", p.ID, units.FormatCountOf(int64(len(p.Moves)), "move", "moves"),
		units.FormatBytes(p.Bytes), p.Epoch)}
	if p.After > 0 {
		lines = append(lines, fmt.Sprintf("the fullest column has %.2f of its share before, %.2f after", p.Before, p.After))
	}
	for _, m := range p.Moves {
		if m.From == "" {
			lines = append(lines, fmt.Sprintf("shard %d: to %s, %s", m.Shard, m.To, units.FormatBytes(m.Bytes)))
		} else {
			lines = append(lines, fmt.Sprintf("shard %d: from %s to %s, %s", m.Shard, m.From, m.To, units.FormatBytes(m.Bytes)))
		}
	}
	return lines
}

// noPlan completes the error of a plan.
func noPlan(err error) error {
	if errors.Is(err, placement.ErrNoPlan) {
		return fmt.Errorf("%w; only columns with a live server that are not drained count: see placement show", err)
	}
	return err
}

func newPlacementPlan(env *cli.Env) *cobra.Command {
	var p placementFlags
	command := &cobra.Command{
		Use:   "plan --etcd ENDPOINTS --collection NAME",
		Short: "Show which shards apply would move",
		Long: `Plan writes the moves that make the columns even, their bytes, and the fullest
column in relation to its share before and after. Nothing changes. If a shard
fits into no column, plan says why and exits with status 1.

The columns are those with a live server that are not drained. A column's share
is in proportion to the smallest limit of its servers. A column without a live
server keeps its shards until it is drained.`,
		Example: `  docserviced placement plan --etcd 10.0.0.1:2379 --collection jobs`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
				plan, err := fleet.Propose(ctx, store)
				if err != nil {
					return noPlan(err)
				}
				return p.print(env, plan, planLines(plan)...)
			})
		},
	}
	p.addFlags(command)
	return command
}

func newPlacementApply(env *cli.Env) *cobra.Command {
	var p placementFlags
	command := &cobra.Command{
		Use:   "apply --etcd ENDPOINTS --collection NAME [PLAN]",
		Short: "Let the placer move shards as planned",
		Long: `Apply makes the plan and stores it for the placer, which starts its moves, a few
at a time. With PLAN, as written by plan, it fails if the plan is not that one
any more. Show writes the progress; the command does not wait for it.`,
		Example: `  docserviced placement apply --etcd 10.0.0.1:2379 --collection jobs
  docserviced placement apply --etcd 10.0.0.1:2379 --collection jobs 9f31c2d0`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
				id := ""
				if len(args) > 0 {
					id = args[0]
				}
				plan, err := fleet.Apply(ctx, store, id)
				if changed := (*fleet.ChangedError)(nil); errors.As(err, &changed) {
					return fmt.Errorf("plan %s is not applied: servers or sizes have changed, and the plan is now %s; run placement plan again", changed.Asked, changed.Now)
				}
				if err != nil {
					return noPlan(err)
				}
				return p.print(env, plan, planLines(plan)...)
			})
		},
	}
	p.addFlags(command)
	return command
}

func newPlacementDrain(env *cli.Env) *cobra.Command {
	var p placementFlags
	var dryRun bool
	command := &cobra.Command{
		Use:   "drain --etcd ENDPOINTS --collection NAME COLUMN",
		Short: "Move all shards away from a column",
		Long: `Drain marks a column as drained and applies the plan that moves its shards to
the others. The mark stays until undrain: later plans give the column nothing.
The column serves each shard until another one does. When show lists no shards
for it, its servers can be stopped.

With --dry-run drain writes the plan and changes nothing. If the other columns
have no room, drain says so and changes nothing.`,
		Example: `  docserviced placement drain --etcd 10.0.0.1:2379 --collection jobs --dry-run col-07
  docserviced placement drain --etcd 10.0.0.1:2379 --collection jobs col-07`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
				return p.drain(ctx, env, store, args[0], dryRun)
			})
		},
	}
	p.addFlags(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "write the plan and change nothing")
	return command
}

func (p *placementFlags) drain(ctx context.Context, env *cli.Env, store *etcdmap.Store, column string, dryRun bool) error {
	f, err := fleet.Read(ctx, store)
	if err != nil {
		return err
	}
	if !f.Has(column) {
		return fmt.Errorf("collection %s has no column %q; see placement show", p.collection, column)
	}
	var plan *fleet.Plan
	if dryRun {
		plan, err = fleet.Propose(ctx, store, column)
	} else {
		plan, err = fleet.Apply(ctx, store, "", column)
	}
	if err != nil {
		return noPlan(err)
	}
	return p.print(env, plan, planLines(plan)...)
}

func newPlacementUndrain(env *cli.Env) *cobra.Command {
	var p placementFlags
	command := &cobra.Command{
		Use:   "undrain --etcd ENDPOINTS --collection NAME COLUMN",
		Short: "Let plans use a drained column again",
		Long: `Undrain removes the mark of drain. It moves nothing: the next apply gives the
column shards.`,
		Example: `  docserviced placement undrain --etcd 10.0.0.1:2379 --collection jobs col-07`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
				if err := fleet.Undrain(ctx, store, args[0]); err != nil {
					return err
				}
				return p.print(env, map[string]string{"undrained": args[0]}, "column "+args[0]+" is not drained; run placement apply to give it shards")
			})
		},
	}
	p.addFlags(command)
	return command
}

// newPlacementPause returns pause, or resume.
func newPlacementPause(env *cli.Env, paused bool) *cobra.Command {
	var p placementFlags
	command := &cobra.Command{
		Use:   "pause --etcd ENDPOINTS --collection NAME",
		Short: "Start no moves",
		Long: `Pause makes the placer start no moves and assign no shards, until resume. Moves
in progress are completed.`,
		Example: `  docserviced placement pause --etcd 10.0.0.1:2379 --collection jobs`,
		Args:    cobra.NoArgs,
	}
	done := "moves are paused; run placement resume to continue"
	if !paused {
		command.Use, command.Short = "resume --etcd ENDPOINTS --collection NAME", "Start moves again"
		command.Long = `Resume ends pause: the placer starts the moves of the applied plan.`
		command.Example = `  docserviced placement resume --etcd 10.0.0.1:2379 --collection jobs`
		done = "moves are started"
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return p.with(command.Context(), env, func(ctx context.Context, store *etcdmap.Store) error {
			if err := fleet.Pause(ctx, store, paused); err != nil {
				return err
			}
			return p.print(env, map[string]bool{"paused": paused}, done)
		})
	}
	p.addFlags(command)
	return command
}
