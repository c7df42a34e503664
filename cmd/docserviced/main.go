// Docserviced serves documents by id.
package main

import (
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/docserviced"
)

func main() { cli.Main(docserviced.New) }
