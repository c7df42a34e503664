//go:build linux

package gossip

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

var virtualMembers = flag.Int("members", 50, "members of the cluster on virtual time")

// Measures the time until numbers are unique after starts, kills, replacements, pauses
// and partitions, with the default options on virtual time. It is at most half a minute
// unless gossip misses a member whose state exchanges are then with uninformed members.
// A member that is paused for a minute is like a partitioned one.
func TestTimeToUniqueNumbers(t *testing.T) {
	const within = 3 * time.Minute
	virtualtime.Test(t, func(t *testing.T) {
		members := *virtualMembers
		// Compression only slows the test.
		c := newCluster(t, true, Options{Configure: func(config *memberlist.Config) { config.EnableCompression = false }})
		for n := range members {
			c.start(n, Backend)
		}
		c.eventually("all start at once", within, c.all())
		for n := 11; n <= 15; n++ {
			c.kill(n)
		}
		c.eventually("five are killed", within, c.all())
		for n := 11; n <= 15; n++ {
			c.start(n, Backend)
		}
		c.eventually("five others take their numbers", within, c.all())

		for n := 21; n <= 23; n++ {
			c.network.set(c.host(n), n)
		}
		time.Sleep(time.Minute)
		for n := members; n < members+3; n++ {
			c.start(n, Backend)
		}
		time.Sleep(10 * time.Second)
		require.False(t, unique(c.all()))
		for n := 21; n <= 23; n++ {
			c.network.set(c.host(n), 0)
		}
		c.eventually("three go on after a minute's pause, others having their numbers", within, c.all())
		c.partition(within, within)
		c.close()
	})
}

// The same events on sockets in real time, without measuring the time. Fifty members in
// one process overload the processors under the race detector, answer late and become
// suspect, which causes more messages. All intervals are therefore doubled. With -short there
// are twenty members, and the intervals are a tenth.
func TestFiftyMembers(t *testing.T) {
	const ever = 4 * time.Minute
	members, scale := 50, 10*time.Millisecond
	if testing.Short() {
		members, scale = 20, time.Millisecond
	}
	c := newCluster(t, false, Options{RejoinInterval: 200 * scale, Configure: func(config *memberlist.Config) {
		config.GossipInterval, config.ProbeInterval, config.ProbeTimeout = 40*scale, 200*scale, 190*scale
		config.SuspicionMult, config.SuspicionMaxTimeoutMult = 3, 2
		config.EnableCompression = false
	}})
	for n := range members {
		c.start(n, Backend)
	}
	c.eventually("fifty start at once", ever, c.all())
	for n := 11; n <= 15; n++ {
		c.kill(n)
		c.start(n, Backend)
	}
	c.eventually("five are killed and started again", ever, c.all())
	c.partition(ever, ever)
}

// partition splits the cluster, starts members in both parts, which claim the same
// numbers, and merges it again.
func (c *cluster) partition(aloneWithin, healedWithin time.Duration) {
	before := map[*Member]int{}
	var parts [2][]*Member
	for n, m := range c.members {
		c.network.set(c.host(n), n%2)
		before[m], _ = m.Number()
		parts[n%2] = append(parts[n%2], m)
	}
	for part := range parts {
		c.eventually(fmt.Sprint("cut off, part ", part), aloneWithin, parts[part])
	}
	free := 100 * (1 + len(c.members)/100) // first free address
	for n := free + 1; n <= free+6; n++ {
		c.network.set(c.host(n), n%2)
		c.seed = 2 - n%2 // in the same partition
		number, err := c.start(n, Backend).Wait(c.t.Context())
		require.NoError(c.t, err)
		c.t.Logf("member %d has the number %d", n, number)
	}
	c.seed = 1
	require.False(c.t, unique(c.all()))
	for n := range c.members {
		c.network.set(c.host(n), 0)
	}
	c.eventually("healed", healedWithin, c.all())
	kept := 0
	for m, number := range before {
		if now, _ := m.Number(); now == number {
			kept++
		}
	}
	require.Equal(c.t, len(before), kept, "the older claims are kept")
}

// Members without the key do not join, and a key can be replaced at run time.
func TestOnlyMembersWithTheKeyJoin(t *testing.T) {
	dir := t.TempDir()
	key := func(b byte) string { return base64.StdEncoding.EncodeToString(slices.Repeat([]byte{b}, 32)) + "\n" }
	file := func(name string, keys ...string) (path string) {
		path = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".new", []byte(strings.Join(keys, "")), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
		return path
	}
	c := newCluster(t, false, Options{RejoinInterval: 200 * time.Millisecond})
	o := c.options
	o.Kind, o.KeyFile = Backend, file("keys", key('a'))
	friends := []*Member{c.join(1, o), c.join(2, o)}
	o.KeyFile = file("other", key('b'), key('a'))
	early := c.join(3, o)
	o.KeyFile = ""
	c.join(4, o)
	c.eventually("two have the key", time.Minute, friends)
	require.True(t, unique([]*Member{early}), "it does not know the others")

	// All members accept a new key before one encrypts with it.
	file("keys", key('a'), key('b'))
	c.eventually("a third speaks the new key", time.Minute, append(friends, early))
	file("keys", "nonsense")
	require.Len(t, friends[0].list.Members(), 3)
	require.Error(t, Check("gossip://a:1?key-file="+filepath.Join(dir, "keys")))
	require.NoError(t, Check("gossip://a:1?key-file="+filepath.Join(dir, "other")))
	for _, bad := range []string{"", "dG9vIHNob3J0", strings.Repeat(key('c'), maxKeys+1), strings.Repeat("\n", maxKeyFileBytes+1)} {
		_, err := Join("gossip://a:1?key-file="+file("bad", bad), nil)
		require.Error(t, err)
	}
}

func TestClientsHaveSeparateNumbers(t *testing.T) {
	c := newCluster(t, false, Options{RejoinInterval: 500 * time.Millisecond})
	be := c.start(1, Backend)
	fe, observer := c.start(2, Frontend), c.start(3, Observer)
	updates := make(chan discovery.Snapshot, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- fe.Watch(ctx, func(s discovery.Snapshot) { updates <- s }) }()
	want := discovery.Snapshot{Servers: []discovery.Server{{Number: 0, Address: "be-1:7070"}}, Numbers: 1, Self: 0, Frontends: 1}
	for {
		s := <-updates
		if s.Self == want.Self && slices.Equal(s.Servers, want.Servers) {
			require.Equal(t, want, s)
			break
		}
	}
	_, err := observer.Wait(t.Context())
	require.Error(t, err)
	require.NoError(t, be.Close())
	require.NoError(t, be.Close())
	for len((<-updates).Servers) > 0 {
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, fe.Close())
	require.ErrorContains(t, fe.Watch(t.Context(), func(discovery.Snapshot) {}), "has left")
}

// Members announce their zones, and the frontends of each zone have numbers from 0.
func TestZones(t *testing.T) {
	m := &Member{options: Options{Logger: slog.New(slog.DiscardHandler)}, name: "own", wake: make(chan struct{}, 1)}
	m.mu.own = meta{Kind: Frontend, Number: -1, Zone: "eu-1a"}
	m.mu.known, m.mu.changed = map[string]string{}, make(chan struct{})
	node := func(name, text string) meta { return m.decode(&memberlist.Node{Name: name, Meta: []byte(text)}) }
	m.mu.others = map[string]meta{
		"a": node("a", `{"kind":"backend","number":0,"address":"a:1","zone":"eu-1a"}`),
		"b": node("b", `{"kind":"backend","number":1,"address":"b:1","zone":"eu-1b"}`),
		"c": node("c", `{"kind":"backend","number":2,"address":"c:1","zone":"\u001b[2J"}`),
		"d": node("d", `{"kind":"frontend","number":0,"zone":"eu-1b"}`),
		"e": node("e", `{"kind":"frontend","number":0,"zone":"eu-1a"}`),
		"f": node("f", `{"kind":"frontend","number":2,"zone":"eu-1b"}`),
	}
	require.True(t, m.consider())
	s, _ := m.snapshot()
	require.Equal(t, discovery.Snapshot{Servers: []discovery.Server{
		{Number: 0, Address: "a:1", Zone: "eu-1a"}, {Number: 1, Address: "b:1", Zone: "eu-1b"}, {Number: 2, Address: "c:1"},
	}, Numbers: 3, Self: 1, Frontends: 2}, s)

	joined, err := Join("gossip://127.0.0.1:1?bind=127.0.0.1:0", &Options{Kind: Backend, Server: discovery.Server{Address: "a:1", Zone: "eu-1a"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, joined.Close()) }()
	require.Contains(t, string(joined.encoded()), `"zone":"eu-1a"`)
}

// Members with the same view resolve their claims in one round.
func TestSettle(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for range 500 {
		var all []claimant
		for i := range 1 + rng.IntN(20) {
			all = append(all, claimant{fmt.Sprint(i), meta{Number: rng.IntN(12) - 1, Claimed: int64(rng.IntN(10)), Settled: rng.IntN(2) == 0}})
		}
		keepers, claims := settle(slices.Clone(all))
		taken := map[int]bool{}
		for number, k := range keepers {
			require.Equal(t, number, k.Number)
			taken[number] = true
			for _, c := range all {
				require.False(t, c.Number == number && older(c, k) < 0, "the oldest keeps")
			}
		}
		for _, number := range claims {
			require.False(t, taken[number])
			taken[number] = true
		}
		require.Len(t, taken, len(all))
		for i := range all {
			if number, ok := claims[all[i].name]; ok {
				all[i].Number = number
			}
		}
		_, again := settle(all)
		require.Empty(t, again)
	}
}

func TestBadTargetsAndOptions(t *testing.T) {
	for _, target := range []string{"", "gossip://", "gossip://a:1/x", "http://a:1", "gossip://u@a:1", "gossip://a:1?x=y", ":"} {
		_, err := Join(target, nil)
		require.Error(t, err, target)
	}
	for _, o := range []Options{{Kind: "x"}, {Kind: Backend}, {Server: discovery.Server{Address: "a:1"}}, {Bind: "x"}, {Bind: "1.2.3.4:x"},
		{Kind: Backend, Server: discovery.Server{Address: "a:1", Weight: -1}}, {Kind: Backend, Server: discovery.Server{Address: "a:1", Zone: "a/b"}},
		{Kind: Backend, Server: discovery.Server{Address: "a:1"}, Zone: "a"}, {Kind: Frontend, Zone: "a b"},
		{Kind: Backend, Server: discovery.Server{Address: string(make([]byte, 512))}}} {
		_, err := Join("gossip://a:1", &o)
		require.Error(t, err)
	}
}

// A member whose clock is an hour slow does not win by its older time of claim.
func TestSlowClockDoesNotWinANumber(t *testing.T) {
	m := &Member{options: Options{Logger: slog.New(slog.DiscardHandler)}, name: "old", wake: make(chan struct{}, 1)}
	m.mu.own = meta{Kind: Backend, Number: -1}
	m.mu.others, m.mu.known, m.mu.changed = map[string]meta{}, map[string]string{}, make(chan struct{})
	require.True(t, m.consider(), "claims 0")
	require.False(t, m.consider())
	m.mu.claimed = m.mu.claimed.Add(-settleAfter)
	require.True(t, m.consider(), "has settled")
	require.False(t, m.consider())
	text, err := json.Marshal(meta{Kind: Backend, Claimed: time.Now().Add(-time.Hour).UnixNano(), Address: "be:7070"})
	require.NoError(t, err)
	m.update(&memberlist.Node{Name: "new", Meta: text}, false)
	require.False(t, m.consider())
	number, ok := m.Number()
	require.True(t, ok)
	require.Equal(t, 0, number)
}

// An empty file name, for example from an unset variable, must not disable encryption.
func TestEmptyKeyFileIsAnError(t *testing.T) {
	for _, target := range []string{"gossip://127.0.0.1:1?key-file=", "gossip://127.0.0.1:1?bind=&key-file=x"} {
		_, err := Join(target, nil)
		require.ErrorContains(t, err, "is empty")
		require.ErrorContains(t, Check(target), "is empty")
	}
}

// A member with an invalid number is ignored.
func TestMemberWithTooHighNumberIsIgnored(t *testing.T) {
	var log bytes.Buffer
	m := &Member{options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, wake: make(chan struct{}, 1)}
	m.mu.own = meta{Kind: Observer, Number: -1}
	m.mu.others, m.mu.known, m.mu.changed = map[string]meta{}, map[string]string{}, make(chan struct{})
	for _, number := range []int{0, 1, 700_000, 20251121} {
		text, err := json.Marshal(meta{Kind: Backend, Number: number, Address: "be:7070"})
		require.NoError(t, err)
		m.update(&memberlist.Node{Name: fmt.Sprint("be#", number), Meta: text}, false)
	}
	s, _ := m.snapshot()
	require.Equal(t, 2, s.Numbers)
	require.Len(t, s.Servers, 2)
	require.Contains(t, log.String(), "gossip member be#700000")
	require.Contains(t, log.String(), "gossip member be#20251121")
}
