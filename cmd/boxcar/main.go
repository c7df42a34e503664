// Boxcar fetches documents from docserviced servers, and inspects and drains them.
package main

import (
	"docstore/cmd/internal/boxcar"
	"docstore/cmd/internal/cli"
)

func main() { cli.Main(boxcar.New) }
