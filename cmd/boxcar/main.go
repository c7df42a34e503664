// Boxcar fetches documents from the servers that have them.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

func main() { cli.Main(newRoot) }

func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "boxcar",
		Short: "Fetch documents over Boxcar",
		Long: `Boxcar asks the servers of docserviced for documents, over the protocol in which
servers hand out numbered slots and clients use the lowest.

Flags may also come from the environment, --servers as BOXCAR_SERVERS, and from a YAML
file with flags as keys, in that order.`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	root.AddCommand(newGet(env), newMget(env), newScan(env), newSlots(env), newDrain(env), newUndrain(env), newProbe(env), newTop(env), newBench(env))
	for _, command := range root.Commands() {
		cli.WithConfig(command, configPrefix)
	}
	return root
}

// configPrefix begins the environment variables that flags come from.
const configPrefix = "BOXCAR"

// poolSize is how many slots a command needs, which makes one call at a time:
// one, and one to go on with when that is lost.
const poolSize = 2

// connection is the flags of a command that fetches from a collection.
type connection struct {
	reach
	collection string
}

// addFlags adds the flags, and has what is impossible in them told.
func (c *connection) addFlags(command *cobra.Command) {
	c.reach.addFlags(command.Flags(), 5*time.Second, "longest to wait for an answer")
	addCollection(command, &c.collection, "collection to fetch from")
	command.PreRunE = func(*cobra.Command, []string) error { return c.check() }
}

// addCollection gives a command its --collection.
func addCollection(command *cobra.Command, collection *string, about string) {
	command.Flags().StringVar(collection, "collection", "", about)
	if err := command.MarkFlagRequired("collection"); err != nil {
		panic(err) // the flag was defined a line above
	}
}

// with calls fn with a client when a server has given it a slot, and closes the client.
func (c *connection) with(ctx context.Context, env *cli.Env, fn func(*docservice.Client) error) error {
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

// explain says what a failed call means to the person who made it.
func (c *connection) explain(err error) error { return c.reach.explain(c.servers, err) }
