package boxcar

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

func newGet(env *cli.Env) *cobra.Command {
	var c connection
	command := &cobra.Command{
		Use:   "get [--servers A,B,... | --etcd E] --collection NAME ID",
		Short: "Write a document to standard output",
		Long: `Get writes the document and a newline. If there is none, it prints "not found"
to standard error and exits with status 1.`,
		Example: `  boxcar get --collection jobs 4711
  boxcar get --servers 10.0.0.1:7070,10.0.0.2:7070 --collection jobs 4711 | jq .title
  boxcar get --etcd 10.0.0.1:2379 --collection jobs 4711`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.with(command.Context(), env, func(client documents) error {
				return c.get(command.Context(), env, client, args[0])
			})
		},
	}
	c.addFlags(command)
	return command
}

func (c *connection) get(ctx context.Context, env *cli.Env, client documents, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	document, err := client.Get(ctx, nil, id)
	switch {
	case errors.Is(err, docservice.ErrNotFound):
		return cli.Bare(fmt.Errorf("not found: collection %s has no document %q", c.collection, id))
	case errors.Is(err, docservice.ErrUnavailable):
		return fmt.Errorf("document %q is unavailable on all servers asked: %w; see their /readyz", id, err)
	case err != nil:
		return c.explain(err)
	}
	out := cli.NewOutput(env.Stdout)
	out.Write(document)
	out.Write([]byte("\n"))
	return out.Flush()
}
