package core_test

import (
	"fmt"
	"math/rand/v2"

	"docstore/boxcarrpc/core"
)

// A client with room for two slots meets two servers.
func Example() {
	const slots = 64
	servers := []core.Board{
		core.NewBoard(make([]uint64, core.BoardWords(slots)), slots),
		core.NewBoard(make([]uint64, core.BoardWords(slots)), slots),
	}
	servers[0].Lease(core.NoSlot) // another client was here before

	rng := rand.NewPCG(1, 2)
	ladder := core.NewLadder(2, make([]core.Slot, 3), make([]core.Peer, len(servers)))
	ladder.Join(0, 0, rng)
	ladder.Join(0, 1, rng)
	var seeker core.LeaseSeeker
	for now := int64(0); now < 1e9; now = seeker.Wake(&ladder) {
		peer, below, ok := seeker.NextRequest(now, &ladder, rng)
		if !ok {
			continue
		}
		number, ok := servers[peer].Lease(below)
		if !ok {
			seeker.Done(now, &ladder, peer, core.Declined, rng)
			continue
		}
		_, victim, gone, _ := ladder.Grant(peer, number)
		if gone {
			number, peer, _, _, _ := ladder.Slot(victim)
			servers[peer].Release(number)
		}
		seeker.Done(now, &ladder, peer, core.Granted, rng)
	}

	for ladder.Busy() < 2 {
		entry, _ := ladder.Acquire(1e9, rng)
		number, peer, _, _, _ := ladder.Slot(entry)
		fmt.Printf("slot %d of server %d\n", number, peer)
	}
	// Output:
	// slot 0 of server 1
	// slot 1 of server 1
}
