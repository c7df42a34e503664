package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fleet is clients and servers on virtual time without a network: a lease request is
// answered at once.
type fleet struct {
	t       testing.TB
	now     int64
	boards  []Board
	down    []bool
	owner   []map[int32]int // of each server: the client that holds a slot
	all     []*client
	clients int // number of clients ever added
}

type client struct {
	id     int
	ladder Ladder
	seeker LeaseSeeker
	rng    *rand.PCG
	swaps  int
}

func newFleet(t testing.TB, servers, clients, size int, rng *rand.PCG) *fleet {
	f := &fleet{t: t}
	for range servers {
		f.addServer()
	}
	for range clients {
		f.addClient(size, rng)
	}
	return f
}

const fleetServers = 64 // maximum number of servers

func (f *fleet) addServer() int32 {
	f.boards = append(f.boards, NewBoard(make([]uint64, BoardWords(4096)), 4096))
	f.down = append(f.down, false)
	f.owner = append(f.owner, map[int32]int{})
	server := int32(len(f.boards) - 1)
	for _, c := range f.all {
		c.ladder.Join(f.now, server, c.rng)
	}
	return server
}

func (f *fleet) addClient(size int, rng *rand.PCG) *client {
	c := &client{id: f.clients, rng: rand.NewPCG(rng.Uint64(), rng.Uint64())}
	c.ladder = NewLadder(size, make([]Slot, size+1), make([]Peer, fleetServers))
	for s := range f.boards {
		c.ladder.Join(f.now, int32(s), c.rng)
	}
	f.all = append(f.all, c)
	f.clients++
	return c
}

// turn advances the time to a client's next lease request and makes it.
func (f *fleet) turn(c *client) {
	f.now = max(f.now, c.seeker.Wake(&c.ladder))
	peer, below, ok := c.seeker.NextRequest(f.now, &c.ladder, c.rng)
	if !ok {
		return
	}
	require.True(f.t, below < farRaise || below == NoSlot, "a lease below %d", below)
	if f.down[peer] {
		c.ladder.Quarantine(f.now, peer, c.rng)
		c.seeker.Done(f.now, &c.ladder, peer, Failed, c.rng)
		return
	}
	number, ok := f.boards[peer].Lease(below)
	if !ok {
		require.GreaterOrEqual(f.t, number, below)
		c.seeker.Done(f.now, &c.ladder, peer, Declined, c.rng)
		return
	}
	_, held := f.owner[peer][number]
	require.False(f.t, held, "slot %d of server %d is leased twice", number, peer)
	f.owner[peer][number] = c.id
	before, full := c.sum(), c.ladder.Full()
	entry, victim, gone, ok := c.ladder.Grant(peer, number)
	require.True(f.t, ok, "the ladder refuses the slot that it requested")
	require.NotEqual(f.t, entry, victim)
	if victim >= 0 {
		old := c.ladder.slots[victim]
		if gone {
			f.giveBack(old.peer, old.number)
		}
		spare := c.ladder.peers[peer].far && !c.ladder.peers[old.peer].far
		require.False(f.t, spare && c.ladder.farHeld > c.ladder.spare(), "only a spare slot replaces a near one")
		if full && c.ladder.peers[old.peer].member && !spare {
			require.Less(f.t, c.sum(), before, "a swap must lower the sum")
			c.swaps++
		}
	}
	c.seeker.Done(f.now, &c.ladder, peer, Granted, c.rng)
}

func (f *fleet) giveBack(peer, number int32) {
	require.True(f.t, f.boards[peer].Release(number))
	delete(f.owner[peer], number)
}

// answer ends a request successfully.
func (f *fleet) answer(c *client, entry int32) { f.release(c, entry, Success) }

func (f *fleet) release(c *client, entry int32, outcome Outcome) {
	old := c.ladder.slots[entry]
	if c.ladder.Release(f.now, entry, outcome, c.rng) {
		f.giveBack(old.peer, old.number)
	}
}

func (f *fleet) client(id int) *client {
	for _, c := range f.all {
		if c.id == id {
			return c
		}
	}
	f.t.Fatalf("no client %d", id)
	return nil
}

// vanish removes a client: the servers reclaim its slots.
func (f *fleet) vanish(c *client) {
	for i := range c.ladder.slots {
		if s := &c.ladder.slots[i]; s.state != slotUnused {
			f.giveBack(s.peer, s.number)
			c.ladder.Lose(int32(i))
		}
	}
	f.all = slices.DeleteFunc(f.all, func(x *client) bool { return x == c })
}

// crash stops a server: every client loses its slots there.
func (f *fleet) crash(server int32) {
	f.down[server] = true
	for _, c := range f.all {
		for i := range c.ladder.slots {
			if s := &c.ladder.slots[i]; s.state != slotUnused && s.peer == server {
				f.giveBack(s.peer, s.number)
				c.ladder.Lose(int32(i))
			}
		}
		c.ladder.Quarantine(f.now, server, c.rng)
		c.seeker.RequestNow(f.now)
	}
}

// recover restarts a server without leases and advances the time until all quarantines
// are over and all clients are about to ask it.
func (f *fleet) recover(server int32) {
	f.down[server] = false
	f.now += 2 * quarantineLimit
	for _, c := range f.all {
		c.ladder.Advance(f.now, c.rng)
	}
	f.now += welcomeWithin
}

// settle makes lease requests of random clients until the slots no longer change.
func (f *fleet) settle(rng *rand.PCG) {
	for quiet := 0; quiet < 40*len(f.all)*len(f.boards); quiet++ {
		c := f.all[uniform(rng, uint64(len(f.all)))]
		before, held := c.sum(), c.ladder.Held()
		f.turn(c)
		if c.sum() != before || c.ladder.Held() != held {
			quiet = 0
		}
	}
}

func (c *client) sum() (sum int) {
	for _, h := range c.holds() {
		sum += int(c.ladder.peers[h[1]].level(h[0]))
	}
	return sum
}

// holds returns the client's slots as {number, server}, ascending.
func (c *client) holds() [][2]int32 {
	var list [][2]int32
	for i := range c.ladder.slots {
		if s := &c.ladder.slots[i]; s.state != slotUnused && !s.retiring {
			list = append(list, [2]int32{s.number, s.peer})
		}
	}
	slices.SortFunc(list, func(a, b [2]int32) int { return slices.Compare(a[:], b[:]) })
	return list
}

// give leases a given slot for a client.
func (f *fleet) give(c *client, number, server int32) {
	b := &f.boards[server]
	require.False(f.t, b.Holds(number))
	b.words[number/64] |= 1 << (number % 64)
	b.taken++
	f.owner[server][number] = c.id
	_, _, _, ok := c.ladder.Grant(server, number)
	require.True(f.t, ok)
}

// check compares the records of clients and servers.
func (f *fleet) check() {
	total := 0
	for _, c := range f.all {
		c.ladder.check(f.t)
		for i := range c.ladder.slots {
			if s := &c.ladder.slots[i]; s.state != slotUnused {
				require.Equal(f.t, c.id, f.owner[s.peer][s.number])
				total++
			}
		}
	}
	taken := 0
	for s := range f.boards {
		taken += f.boards[s].Taken()
		require.Len(f.t, f.owner[s], f.boards[s].Taken())
	}
	require.Equal(f.t, total, taken)
}

// check verifies the redundant fields of a ladder.
func (l *Ladder) check(t testing.TB) {
	var held, busy, free, farHeld int32
	heldOf := make([]int32, len(l.peers))
	for i := range l.slots {
		s := &l.slots[i]
		switch s.state {
		case slotUnused:
			continue
		case slotFree:
			free++
			require.Equal(t, int32(i), l.slots[s.at].heap)
			if rank := l.rankOf(&l.peers[s.peer]); s.rank > rankIdle || rank != rankHealthy {
				require.Equal(t, rank, s.rank)
			}
			if s.at > 0 {
				require.False(t, l.before(int32(i), l.slots[(s.at-1)/2].heap), "heap order")
			}
		case slotBusy:
			busy++
		}
		if !s.retiring {
			held++
			heldOf[s.peer]++
			if l.isFar(int32(i)) {
				farHeld++
			}
		}
	}
	require.Equal(t, []int32{held, busy, free, farHeld}, []int32{l.held, l.busy, l.free, l.farHeld})
	var members, owns, live, sound, asking, late, probing, lateProbes int32
	var shares, farShares, own int64
	for i := range l.peers {
		p := &l.peers[i]
		require.Equal(t, heldOf[i], p.held)
		if p.member {
			members++
			if !p.borrowed {
				owns++
				own += p.weight()
			}
		}
		if p.live() {
			live++
			if !p.ejected {
				sound++
			}
			if p.request != overdue {
				shares += p.weight()
				if p.far {
					farShares += p.weight()
				}
			}
		}
		switch p.request {
		case timely:
			asking++
		case overdue:
			late++
		case probe:
			probing++
		case lateProbe:
			lateProbes++
		}
	}
	l.checkLists(t)
	require.Equal(t, []int64{shares, farShares, own}, []int64{l.shares, l.farShares, l.own})
	require.Equal(t, []int32{members, owns, live, sound, asking, late, probing, lateProbes}, []int32{l.members, l.owned, l.live, l.sound, l.asking, l.late, l.probing, l.lateProbes})
	unused := int32(0)
	for i := l.unused; i != none; i = l.slots[i].at {
		require.Equal(t, slotUnused, l.slots[i].state)
		unused++
	}
	require.Equal(t, int32(len(l.slots)), unused+free+busy)
	if l.topKnown {
		top, near := l.top, l.nearTop
		l.topKnown = false
		if again := l.highest(none); top != none {
			require.Equal(t, l.slots[again].level, l.slots[top].level, "cached highest")
		}
		if near != none {
			require.Equal(t, l.slots[l.nearTop].level, l.slots[near].level, "cached highest near")
		}
	}
}

// checkLists verifies the list of members and the heaps of alarms.
func (l *Ladder) checkLists(t testing.TB) {
	for i := range l.peers {
		p := &l.peers[i]
		if p.member {
			require.Equal(t, int32(i), l.memberAt(p.at))
		}
		require.Equal(t, p.isolated || p.paused || p.ejected || p.request == timely || p.request == probe, p.hasAlarm(alarmChange))
		if p.hasAlarm(alarmProbe) {
			require.Equal(t, broken, p.contact)
		}
		if p.contact == broken && p.leases() && !p.ejected && p.request == noRequest {
			require.True(t, p.hasAlarm(alarmProbe), "server %d is never probed", i)
		}
		if p.hasAlarm(alarmWelcome) {
			require.NotEqual(t, broken, p.contact)
		}
	}
	for k := range alarms {
		for place := range l.alarms[k] {
			peer := l.peers[place].links.heap[k]
			require.Equal(t, place+1, l.peers[peer].place[k])
			if parent := l.peers[max(place-1, 0)/2].links.heap[k]; place > 0 {
				require.LessOrEqual(t, l.peers[parent].due[k], l.peers[peer].due[k], "heap order")
			}
		}
	}
	_, wake := l.first(alarmChange)
	require.Equal(t, wake, l.wake)
}
