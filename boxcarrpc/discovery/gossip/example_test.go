package gossip_test

import (
	"fmt"

	"docstore/boxcarrpc/discovery/gossip"
)

func ExampleJoin() {
	_, err := gossip.Join("gossip://10.0.0.1:7946", &gossip.Options{Kind: gossip.Backend})
	fmt.Println(err)
	// Output: gossip: backend without a server address
}
