package core

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// Servers join, leave, are forgotten and their indexes used again, in any state, while the
// slice of peers grows. The heaps, lists and sums stay right.
func TestIndexesAreUsedAgain(t *testing.T) {
	rng := testseed.PCG(t)
	const size, most = 8, 64
	peers := 4
	c := NewClient(size, make([]Slot, size+3), make([]Peer, peers))
	c.CheckHealth(second)
	c.SetKnown()
	var busy []int32
	var asked []int32
	number, now := int32(0), int64(0)
	random := func() int32 { return int32(uniform(rng, uint64(peers))) }
	for range 2000 {
		now += int64(uniform(rng, 50*millisecond))
		peer := random()
		switch uniform(rng, 14) {
		case 0:
			c.SetWeight(peer, float64(1+uniform(rng, 4)))
			c.Join(now, peer, rng)
		case 1:
			c.Borrow(now, peer, rng)
		case 2, 3:
			c.Leave(peer)
			for entry := range int32(len(c.slots)) {
				if _, of, isBusy, _, used := c.Slot(entry); used && of == peer && (isBusy || uniform(rng, 2) == 0) {
					c.Lose(entry)
				}
			}
			if c.Peer(peer).Held == 0 && uniform(rng, 2) == 0 {
				c.Forget(peer)
				asked = slices.DeleteFunc(asked, func(of int32) bool { return of == peer })
			}
		case 4:
			if peers < most && uniform(rng, 10) == 0 {
				peers += 1 + int(uniform(rng, 8))
				c.Grow(make([]Peer, peers))
			}
		case 5:
			c.Quarantine(now, peer, rng)
		case 6:
			c.SetDraining(now, peer, uniform(rng, 3) == 0, rng)
		case 7:
			c.SetFar(peer, uniform(rng, 2) == 0)
		case 8:
			c.RecordOutcome(now, peer, Outcome(uniform(rng, 4)), rng)
		case 9:
			if entry, ok := c.Acquire(now, nil, rng); ok {
				busy = append(busy, entry)
			}
		case 10:
			c.WantOther([]int32{peer}, rng)
		case 11:
			if entry, ok := c.Check(now, rng); ok {
				_, of, _, _, _ := c.Slot(entry)
				c.Release(now, entry, Response{Outcome: Success, Lowest: NoSlot}, rng)
				c.Checked(now, of, uniform(rng, 2) == 0, rng)
			}
		default:
			if len(asked) == 0 {
				break
			}
			of := asked[0]
			asked = asked[1:]
			switch LeaseResult(uniform(rng, 3)) {
			case Granted:
				number++
				c.Grant(now, of, number%200, rng)
			case Declined:
				c.Done(now, of, Declined, rng)
			case Failed:
				c.Quarantine(now, of, rng)
				c.Done(now, of, Failed, rng)
			}
		}
		still := busy[:0]
		for _, entry := range busy {
			switch _, _, isBusy, _, used := c.Slot(entry); {
			case !used || !isBusy:
			case uniform(rng, 3) == 0:
				c.Release(now, entry, Response{Outcome: Success, Load: int32(uniform(rng, 3)), Lowest: NoSlot}, rng)
			default:
				still = append(still, entry)
			}
		}
		busy = still
		for _, ok := c.Trim(); ok; _, ok = c.Trim() {
		}
		if of, _, ok := c.NextRequest(now, rng); ok {
			require.NotContains(t, asked, of)
			asked = append(asked, of)
		}
		c.check(t)
	}
	require.Greater(t, peers, 4)
	require.Positive(t, number)
}
