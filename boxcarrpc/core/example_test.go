package core_test

import (
	"fmt"
	"math/rand/v2"

	"docstore/boxcarrpc/core"
)

// A client for two slots uses two servers. Another client holds slot 0 of server 0.
func Example() {
	const slots = 64
	servers := []core.Board{
		core.NewBoard(make([]uint64, core.BoardWords(slots)), slots),
		core.NewBoard(make([]uint64, core.BoardWords(slots)), slots),
	}
	servers[0].Lease(core.NoSlot)

	rng := rand.NewPCG(1, 2)
	client := core.NewClient(2, make([]core.Slot, 3), make([]core.Peer, len(servers)))
	client.Join(0, 0, rng)
	client.Join(0, 1, rng)
	for now := int64(0); now < 1e9; now = client.Wake() {
		peer, below, ok := client.NextRequest(now, rng)
		if !ok {
			continue
		}
		number, ok := servers[peer].Lease(below)
		if !ok {
			client.Done(now, peer, core.Declined, rng)
			continue
		}
		_, victim, gone, _ := client.Grant(now, peer, number, rng)
		if gone {
			number, peer, _, _, _ := client.Slot(victim)
			servers[peer].Release(number)
		}
	}

	for client.Busy() < 2 {
		entry, _ := client.Acquire(1e9, nil, rng)
		number, peer, _, _, _ := client.Slot(entry)
		fmt.Printf("slot %d of server %d\n", number, peer)
	}
	// Output:
	// slot 0 of server 1
	// slot 1 of server 1
}
