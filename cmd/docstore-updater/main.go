// Docstore-updater appends documents to queues, and maintains queues.
package main

import (
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/updater"
)

func main() { cli.Main(updater.New) }
