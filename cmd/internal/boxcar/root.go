// Package boxcar contains the command boxcar: it fetches documents from docserviced servers,
// and inspects and drains them.
package boxcar

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/man"
	"docstore/cmd/internal/settings"
	"docstore/docservice"
)

// New returns the command boxcar.
func New(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "boxcar",
		Short: "Fetch documents over Boxcar",
		Long: `Boxcar fetches documents from docserviced servers over the Boxcar protocol, in
which servers grant numbered slots and clients use the lowest.

Flags can also be set by the environment, --servers as BOXCAR_SERVERS, and by a
YAML file with flags as keys, in that order.`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	root.AddCommand(newGet(env), newMget(env), newScan(env), newSlots(env), newDrain(env), newUndrain(env), newProbe(env), newExplain(env), newTop(env), newFleet(env), newBench(env), man.New(root))
	for _, command := range root.Commands() {
		settings.With(command, configPrefix)
	}
	return root
}

// configPrefix is the prefix of the environment variables of flags.
const configPrefix = "BOXCAR"

// poolSize is the number of slots of a command that makes one call at a time: one, and one
// in reserve if it is lost.
const poolSize = 2

// connection holds the flags of a command that fetches from a collection.
type connection struct {
	serverFlags
	shards     shardFlags
	collection string
}

// addFlags adds the flags and their check.
func (c *connection) addFlags(command *cobra.Command) {
	c.serverFlags.addFlags(command.Flags(), 5*time.Second, "timeout of a call")
	c.addZoneFlag(command.Flags())
	c.shards.addFlag(command.Flags())
	c.shards.addCacheFlag(command.Flags())
	addCollection(command, &c.collection, "collection to fetch from")
	command.PreRunE = func(command *cobra.Command, _ []string) error { return c.check(command.Flags()) }
}

// check reports all invalid flags.
func (c *connection) check(flags *pflag.FlagSet) error {
	return errors.Join(c.serverFlags.check(), c.shards.check(flags, "servers"))
}

// addCollection adds the required flag --collection.
func addCollection(command *cobra.Command, collection *string, about string) {
	command.Flags().StringVar(collection, "collection", "", about)
	if err := command.MarkFlagRequired("collection"); err != nil {
		panic(err) // the flag was just defined
	}
}

// with calls fn with a client once a server has granted a slot, and closes the client.
func (c *connection) with(ctx context.Context, env *cli.Env, fn func(documents) error) error {
	if c.shards.etcd != "" {
		client, err := c.shards.open(ctx, env, &c.serverFlags, c.collection, shardedPoolSize)
		if err != nil {
			return err
		}
		return errors.Join(fn(client), client.Close())
	}
	pool, err := c.newPool(c.servers, &boxcarrpc.PoolOptions{
		Size:    poolSize,
		Methods: docservice.IdempotentMethods(),
		Logger:  env.Log,
	})
	if err != nil {
		return err
	}
	if err = c.await(ctx, pool, hasSlot); err != nil {
		err = c.explain(err)
	} else {
		err = fn(docservice.NewClient(pool, c.collection))
	}
	return errors.Join(err, pool.Close())
}

// explain converts the error of a call to a message for the user.
func (c *connection) explain(err error) error {
	servers := c.servers
	if c.shards.etcd != "" {
		servers = []string{"collection " + c.collection}
	}
	return c.serverFlags.explain(servers, err)
}
