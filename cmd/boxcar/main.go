// Boxcar fetches documents from the servers that have them.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/internal/cli"
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
	root.AddCommand(newGet(env), newMget(env), newScan(env), newSlots(env), newDrain(env), newUndrain(env), newProbe(env), newBench(env))
	for _, command := range root.Commands() {
		cli.WithConfig(command, configPrefix, nil)
	}
	return root
}

// configPrefix begins the environment variables that flags come from.
const configPrefix = "BOXCAR"

// poolSize is how many slots a command needs, which makes one call at a time:
// one, and one to go on with when that is lost.
const poolSize = 2

// connection is the flags that say whom to ask, and for how long.
type connection struct {
	servers    []string
	collection string
	timeout    time.Duration
	security   security
}

func (c *connection) addFlags(command *cobra.Command) {
	flags := command.Flags()
	addServers(flags, &c.servers)
	flags.StringVar(&c.collection, "collection", "", "collection to fetch from")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Second, "longest to wait for an answer")
	c.security.addFlags(flags)
	if err := command.MarkFlagRequired("collection"); err != nil {
		panic(err) // the flag was defined above
	}
}

// with calls fn with a client, and closes it.
func (c *connection) with(env *cli.Env, fn func(*docservice.Client) error) error {
	switch {
	case len(c.servers) == 0:
		return cli.Usagef("--servers is empty")
	case c.timeout <= 0:
		return cli.Usagef("--timeout %s: it must be over 0", c.timeout)
	}
	pool, err := c.security.newPool(c.servers, &boxcarrpc.PoolOptions{
		Size:    poolSize,
		Methods: docservice.IdempotentMethods(),
		Logger:  env.Log,
	})
	if err != nil {
		return err
	}
	err = fn(docservice.NewClient(pool, c.collection))
	return errors.Join(err, pool.Close())
}

// explain says what a failed call means to the person who made it.
func (c *connection) explain(err error) error {
	switch {
	case errors.Is(err, boxcarrpc.ErrNoServer):
		why := strings.TrimPrefix(err.Error(), boxcarrpc.ErrNoServer.Error()+": ")
		return fmt.Errorf("no server of %v answered within %s; is one running there, and serving Boxcar? %s", c.servers, c.timeout, why)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s; give a longer --timeout", c.timeout)
	}
	return err
}
