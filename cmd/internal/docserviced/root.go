// Package docserviced contains the command docserviced: it serves documents by id. It tails
// queues of documents into indexes, answers over Boxcar and optionally gRPC, and reports its
// state over HTTP.
package docserviced

import (
	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/demo"
	"docstore/cmd/internal/man"
)

// New returns the command docserviced.
func New(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "docserviced",
		Short: "Serve documents by id",
		Long: `Docserviced serves the documents of queues that docstore-updater writes,
directly from the queue's directory or from a copy made by rsync.`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	root.AddCommand(newServe(env), newConfig(env), demo.New(env, "docserviced demo"), newCheck(env), newCheckpoint(env), cli.Audit(env, newReindex(env), ""), newBundle(env), newHealth(env), newPlacement(env), newPlan(env), man.New(root))
	return root
}
