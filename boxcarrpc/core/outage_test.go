package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// Random events of a client that holds at most one slot of each server, compared with the
// definition of an outage.
func TestOutage(t *testing.T) {
	const servers = 4
	pcg := testseed.PCG(t)
	rng := rand.New(pcg)
	outages := 0
	for range 200 {
		c := NewClient(servers, make([]Slot, servers+1), make([]Peer, servers))
		var known, was bool
		var member, draining, down, held [servers]bool
		entries := [servers]int32{}
		var now, since int64
		for range 100 {
			now += int64(rng.Uint64N(outageGrace / 2))
			i := int32(rng.IntN(servers))
			lose := func() {
				if held[i] {
					c.Lose(entries[i])
					held[i] = false
				}
			}
			switch rng.IntN(8) {
			case 0:
				c.SetKnown()
				known = true
			case 1:
				c.Join(now, i, pcg)
				member[i] = true
			case 2:
				lose()
				c.Leave(i)
				member[i] = false
			case 3, 4:
				if member[i] {
					lose()
					c.Quarantine(now, i, pcg)
					down[i] = true
				}
			case 5:
				if member[i] {
					lose()
					draining[i] = !draining[i]
					c.SetDraining(now, i, draining[i], pcg)
				}
			}
			// The servers that are asked answer at once: some grant, some decline, some fail.
			for asked := true; asked; {
				is, members := known, 0
				for i := range servers {
					if member[i] {
						members++
					}
					is = is && !held[i] && (!member[i] || draining[i] || down[i])
				}
				if is && !was {
					since = now
					outages++
				}
				was = is
				var peer int32
				peer, _, asked = c.NextRequest(now, pcg)
				require.Equal(t, is && (members == 0 || now >= since+outageGrace), c.Outage())
				if is && !c.Outage() && !asked {
					require.LessOrEqual(t, c.Wake(), since+outageGrace)
				}
				if !asked {
					break
				}
				switch rng.IntN(8) {
				case 0:
					if entry, _, _, ok := c.Grant(now, peer, 0, pcg); ok { // not a second slot
						entries[peer], held[peer] = entry, true
					}
					down[peer] = false
				case 1:
					c.Done(now, peer, Declined, pcg)
					down[peer] = false
				default:
					c.Quarantine(now, peer, pcg)
					c.Done(now, peer, Failed, pcg)
					down[peer] = true
				}
			}
		}
	}
	require.Greater(t, outages, 200)
}
