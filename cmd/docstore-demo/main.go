// Docstore-demo runs updater, daemon and client in one process, with generated documents. It
// is for a clone: docserviced demo does the same and links all of docserviced.
package main

import (
	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/demo"
)

func main() {
	cli.Main(func(env *cli.Env) *cobra.Command { return demo.New(env, "docstore-demo") })
}
