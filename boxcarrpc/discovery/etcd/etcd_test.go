//go:build linux

package etcd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/freeport"
)

func backend(t *testing.T, r *Registry, address string) *Number {
	t.Helper()
	n, err := r.Backend(discovery.Server{Address: address})
	require.NoError(t, err)
	return n
}

func held(t *testing.T, n *Number) int {
	t.Helper()
	number, err := n.Wait(t.Context())
	require.NoError(t, err)
	return number
}

// watching collects the snapshots of a source.
type watching struct {
	t       *testing.T
	updates chan discovery.Snapshot
}

func watch(t *testing.T, s discovery.Source) *watching {
	w := &watching{t, make(chan discovery.Snapshot, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Watch(ctx, func(s discovery.Snapshot) { w.updates <- s }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return w
}

// until waits for a snapshot with exactly these servers, as "number=address".
func (w *watching) until(self int, servers ...string) (snapshots int) {
	w.t.Helper()
	want := fmt.Sprint(self, servers)
	for seen := ""; ; {
		select {
		case s := <-w.updates:
			snapshots++
			var list []string
			for _, server := range s.Servers {
				list = append(list, fmt.Sprint(server.Number, "=", server.Address))
			}
			if seen = fmt.Sprint(s.Self, list); seen == want {
				return snapshots
			}
		case <-time.After(time.Minute):
			w.t.Fatalf("timeout: want %s, the last was %s", want, seen)
		}
	}
}

func TestLowestFreeNumberIsClaimed(t *testing.T) {
	r := open(t, startEtcd(t), short)
	w := watch(t, r.Source(nil))
	a := backend(t, r, "a:1")
	require.Equal(t, 0, held(t, a))
	b := backend(t, r, "b:1")
	require.Equal(t, 1, held(t, b))
	c, err := r.Backend(discovery.Server{Address: "c:1", Weight: 2, Zone: "eu-1a"})
	require.NoError(t, err)
	require.Equal(t, 2, held(t, c))
	w.until(-1, "0=a:1", "1=b:1", "2=c:1")
	require.NoError(t, b.Close())
	_, ok := b.Get()
	require.False(t, ok)
	_, err = b.Wait(t.Context())
	require.ErrorContains(t, err, "the number was closed")
	w.until(-1, "0=a:1", "2=c:1")
	require.Equal(t, 1, held(t, backend(t, r, "d:1")))
	w.until(-1, "0=a:1", "1=d:1", "2=c:1")

	// Clients have a separate sequence of numbers.
	fe, err := r.Frontend("fe")
	require.NoError(t, err)
	require.Equal(t, 0, held(t, fe))
	second, err := r.Frontend("fe")
	require.NoError(t, err)
	other := watch(t, r.Source(second))
	other.until(1, "0=a:1", "1=d:1", "2=c:1")
	require.NoError(t, second.Close())
	other.until(-1, "0=a:1", "1=d:1", "2=c:1")

	// Unknown keys are ignored.
	for key, value := range map[string]string{"/backends/x": "{}", "/backends/007": `{"address":"x"}`, "/backends/7": "{}", "/backends/8": "nonsense"} {
		_, err := clientOf(t, r).Put(t.Context(), "search"+key, value)
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	w.until(-1, "1=d:1", "2=c:1")
}

// The zone of a server is part of its entry. Each zone numbers its clients from 0.
func TestZones(t *testing.T) {
	address := startEtcd(t)
	in := func(zone string) *Registry { return open(t, address, &Options{TTL: short.TTL, Zone: zone}) }
	r := in("")
	for _, server := range []discovery.Server{{Address: "a:1", Zone: "eu-1a"}, {Number: 1, Address: "b:1", Zone: "eu-1b"}, {Number: 2, Address: "c:1"}} {
		n, err := r.Backend(server)
		require.NoError(t, err)
		require.Equal(t, server.Number, held(t, n))
	}
	for _, zone := range []string{"", "eu-1a", "eu-1b"} {
		clients := in(zone)
		for want := range 2 {
			n, err := clients.Frontend("fe")
			require.NoError(t, err)
			require.Equal(t, want, held(t, n))
		}
	}
	var zones []string
	for zones == nil {
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, r.Source(nil).Watch(ctx, func(s discovery.Snapshot) {
			if len(s.Servers) == 3 {
				zones = []string{s.Servers[0].Zone, s.Servers[1].Zone, s.Servers[2].Zone}
			}
			cancel()
		}), context.Canceled)
	}
	require.Equal(t, []string{"eu-1a", "eu-1b", ""}, zones)
	_, err := r.Backend(discovery.Server{Address: "d:1", Zone: "a/b"})
	require.ErrorContains(t, err, `zone "a/b"`)
	_, err = Open("etcd://"+address+"/search", &Options{Zone: "a/b"})
	require.ErrorContains(t, err, `zone "a/b"`)
	v := view{servers: map[int]discovery.Server{}}
	r.apply(v, &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(r.entries(backends) + "7"), Value: []byte(`{"address":"e:1","zone":"\u001b[2J"}`)}})
	require.Equal(t, discovery.Server{Number: 7, Address: "e:1"}, v.servers[7])
}

// A watch ends although changes are pending.
func TestWatchEndsWhileChangesArrive(t *testing.T) {
	r := open(t, startEtcd(t), short)
	held(t, backend(t, r, "a:1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := 0
	err := r.Source(nil).Watch(ctx, func(s discovery.Snapshot) {
		switch told++; told {
		case 1:
			held(t, backend(t, r, "b:1")) // causes the second call
		case 2:
			other := watch(t, r.Source(nil))
			other.until(-1, "0=a:1", "1=b:1")
			held(t, backend(t, r, "c:1"))
			other.until(-1, "0=a:1", "1=b:1", "2=c:1")
			cancel()
			time.Sleep(gather) // until the pending change is seen
		}
	})
	require.ErrorIs(t, err, context.Canceled)
}

// With CountFrontends snapshots have the highest client number plus one.
func TestClientsAreCounted(t *testing.T) {
	address := startEtcd(t)
	r := open(t, address, &Options{CountFrontends: true})
	var clients []*Number
	for range 3 {
		n, err := r.Frontend("fe")
		require.NoError(t, err)
		held(t, n)
		clients = append(clients, n)
	}
	w := watch(t, r.Source(clients[1]))
	until := func(frontends int) {
		t.Helper()
		for s := range w.updates {
			if s.Frontends == frontends {
				return
			}
		}
	}
	until(3)
	require.NoError(t, clients[2].Close())
	until(2)
	require.NoError(t, clients[0].Close())
	other, err := r.Frontend("fe")
	require.NoError(t, err)
	require.Equal(t, 0, held(t, other))
	another, err := r.Frontend("fe")
	require.NoError(t, err)
	require.Equal(t, 2, held(t, another))
	until(3)

	uncounted := watch(t, open(t, address, nil).Source(nil))
	require.Zero(t, (<-uncounted.updates).Frontends)
}

// A claimant skips a free number for each claimant ahead in the queue.
func TestClaimantAheadTakesLowerNumber(t *testing.T) {
	r := open(t, startEtcd(t), short)
	_, err := clientOf(t, r).Put(t.Context(), r.line(backends)+"somebody", "")
	require.NoError(t, err)
	require.Equal(t, 1, held(t, backend(t, r, "a:1")))
	require.Equal(t, 2, held(t, backend(t, r, "b:1")))
	_, err = clientOf(t, r).Delete(t.Context(), r.line(backends)+"somebody")
	require.NoError(t, err)
	require.Equal(t, 0, held(t, backend(t, r, "c:1")))
	line, err := clientOf(t, r).Get(t.Context(), r.line(backends), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, line.Kvs)
}

func TestManyClaimAtOnce(t *testing.T) {
	address := startEtcd(t)
	seen := map[int]bool{}
	var numbers []*Number
	for i := range 5 {
		r := open(t, address, nil)
		for j := range 4 {
			numbers = append(numbers, backend(t, r, fmt.Sprintf("%d-%d:1", i, j)))
		}
	}
	for _, n := range numbers {
		number := held(t, n)
		require.False(t, seen[number], "%d", number)
		require.Less(t, number, len(numbers))
		seen[number] = true
	}
}

// A server that is disconnected for longer than its leases gets the same number again.
// Its watcher keeps the other servers.
func TestDisconnectedHolderLosesNumberAndGetsItBack(t *testing.T) {
	address := startEtcd(t)
	way := newLink(t, address)
	r, far := open(t, address, short), open(t, way.address(), short)
	require.Equal(t, 0, held(t, backend(t, r, "a:1")))
	b := backend(t, far, "b:1")
	require.Equal(t, 1, held(t, b))
	w, farther := watch(t, r.Source(nil)), watch(t, far.Source(b))
	w.until(-1, "0=a:1", "1=b:1")
	farther.until(1, "0=a:1", "1=b:1")

	way.set(true)
	until(t, "the number is lost", func() bool { _, ok := b.Get(); return !ok })
	w.until(-1, "0=a:1")
	farther.until(-1, "0=a:1", "1=b:1") // the last set, without the client's number
	way.set(false)
	require.Equal(t, 1, held(t, b))
	w.until(-1, "0=a:1", "1=b:1")
	farther.until(1, "0=a:1", "1=b:1")
}

// A server that restarts on the same address waits for its number.
func TestRestartedServerGetsSameNumber(t *testing.T) {
	address := startEtcd(t)
	way := newLink(t, address)
	r, far := open(t, address, short), open(t, way.address(), short)
	first := backend(t, r, "a:1")
	require.Equal(t, 0, held(t, first))
	require.Equal(t, 1, held(t, backend(t, far, "b:1")))
	way.set(true) // like a dead process
	require.NoError(t, first.Close())
	require.Equal(t, 1, held(t, backend(t, r, "b:1")), "although 0 is free")
}

// If the changes during a disconnection were compacted, the watcher reads all servers
// again and reports the change in one step.
func TestWatcherReadsAgainAfterCompaction(t *testing.T) {
	address := startEtcd(t)
	way := newLink(t, address)
	r, far := open(t, address, nil), open(t, way.address(), short)
	numbers := []*Number{backend(t, r, "a:1")}
	held(t, numbers[0])
	w := watch(t, far.Source(nil))
	w.until(-1, "0=a:1")
	way.set(true)
	for _, name := range []string{"b:1", "c:1", "d:1"} {
		numbers = append(numbers, backend(t, r, name))
		held(t, numbers[len(numbers)-1])
	}
	require.NoError(t, numbers[0].Close())
	require.NoError(t, numbers[2].Close())
	answer, err := clientOf(t, r).Get(t.Context(), "x")
	require.NoError(t, err)
	_, err = clientOf(t, r).Compact(t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	way.set(false)
	require.Equal(t, 1, w.until(-1, "1=b:1", "3=d:1"))
}

// Get checks the clock: a process that was stopped does not hold an expired number.
func TestNumberIsNotHeldAfterItsTime(t *testing.T) {
	n := &Number{}
	n.mu.changed = make(chan struct{})
	n.set(7, time.Now().Add(time.Hour))
	number, ok := n.Get()
	require.Equal(t, []any{7, true}, []any{number, ok})
	n.set(7, time.Now())
	number, ok = n.Get()
	require.Equal(t, []any{-1, false}, []any{number, ok})
}

func TestAWatcherWithoutEtcdFails(t *testing.T) {
	r := open(t, freeport.Address(t), &Options{CallTimeout: 50 * time.Millisecond})
	require.Error(t, r.Source(nil).Watch(t.Context(), nil))
	_, err := r.Backend(discovery.Server{})
	require.Error(t, err)
	_, err = r.Frontend("")
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = backend(t, r, "a:1").Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestBadTargetsAndOptions(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for _, target := range []string{"", "etcd://", "etcd://a:1", "etcd://a:1/", "http://a:1/x", "etcd://a:1/x?y", "etcd://u@a:1/x", ":", "etcd://a:1/x#y",
		"etcd://a:1/x?tls=false", "etcd://a:1/x?ca=", "etcd://a:1/x?ca=missing", "etcd://a:1/x?cert=missing", "etcd://a:1/x?user=a",
		"etcd://a:1/x?password-file=" + empty, "etcd://a:1/x?user=a&password-file=" + empty, "etcd://a:1/x?user=a&password-file=missing", "etcd://a:1/x?;"} {
		require.Error(t, Check(target), target)
		_, err := Open(target, nil)
		require.Error(t, err, target)
	}
	require.NotContains(t, Check("etcd://u:secret@a:1/x").Error(), "secret")
	for _, o := range []Options{{User: "a"}, {TTL: 1500 * time.Millisecond}, {TTL: time.Millisecond}, {Margin: 4 * time.Second}, {Margin: -1}, {CallTimeout: -1}} {
		_, err := Open("etcd://a:1/x", &o)
		require.Error(t, err, o)
	}
	parsed, err := parse("etcd://a:1,b:2/x/y/")
	require.NoError(t, err)
	require.Equal(t, target{endpoints: []string{"a:1", "b:2"}, prefix: "x/y"}, parsed)
}

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// A holder is a separate process that holds a number.
type holder struct {
	command *exec.Cmd
	way     *link
	log     string
}

func startHolder(t *testing.T, etcd string) *holder {
	h := &holder{way: newLink(t, etcd), log: filepath.Join(t.TempDir(), "log")}
	h.command = exec.Command(os.Args[0])
	h.command.Env = append(os.Environ(), holderTarget+"=etcd://"+h.way.address()+"/search", holderLog+"="+h.log)
	h.command.Stderr = os.Stderr
	require.NoError(t, h.command.Start())
	t.Cleanup(func() { h.kill() })
	return h
}

func (h *holder) kill() {
	_ = h.command.Process.Kill() // it may have exited
	_ = h.command.Wait()
}

func (h *holder) signal(t *testing.T, s syscall.Signal) {
	require.NoError(t, h.command.Process.Signal(s))
}

// A tenure is an interval in which a process certainly held a number: from the return
// of the first Get to the start of the last Get.
type tenure struct {
	process, number int
	from, to        int64
}

// tenures reads the log of a process.
func (h *holder) tenures(t *testing.T, process int) (list []tenure) {
	text, err := os.ReadFile(h.log)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	last := -1
	lines := strings.SplitAfter(string(text), "\n")
	for _, line := range lines[:len(lines)-1] { // the last line may be partial
		var number int
		var before, after int64
		_, err := fmt.Sscanln(line, &number, &before, &after)
		require.NoError(t, err)
		switch {
		case number < 0:
		case number == last:
			list[len(list)-1].to = before
		default:
			list = append(list, tenure{process, number, after, before})
		}
		last = number
	}
	return list
}

// last returns the number that the process held last.
func (h *holder) last(t *testing.T) (number int) {
	list := h.tenures(t, 0)
	if len(list) == 0 {
		return -1
	}
	return list[len(list)-1].number
}

// claimed returns the claimed numbers of clients.
func claimed(t *testing.T, r *Registry) (map[int]bool, error) {
	seen, err := (&Number{registry: r, kind: frontends}).look(t.Context(), leases{})
	return seen.taken, err
}

// Processes are killed, stopped for longer than their leases, disconnected and
// reconnected. No two of them hold the same number at the same time.
func TestNoTwoProcessesHoldANumber(t *testing.T) {
	etcd := startEtcd(t)
	r := open(t, etcd, nil)
	var all []*holder
	start := func(n int) (started []*holder) {
		for range n {
			h := startHolder(t, etcd)
			all, started = append(all, h), append(started, h)
		}
		until(t, "the processes hold numbers", func() bool {
			for _, h := range started {
				if h.last(t) < 0 {
					return false
				}
			}
			return true
		})
		return started
	}
	start(1) // it keeps number 0
	for range 2 {
		victims := start(3)
		stopped, cut, killed := victims[0], victims[1], victims[2]
		stopped.signal(t, syscall.SIGSTOP)
		cut.way.set(true)
		killed.kill()
		until(t, "their numbers are free", func() bool {
			taken, err := claimed(t, r)
			for _, h := range victims {
				if err != nil || taken[h.last(t)] {
					return false
				}
			}
			return true
		})
		heirs := start(3)
		for _, h := range victims {
			require.True(t, slices.ContainsFunc(heirs, func(heir *holder) bool { return heir.last(t) == h.last(t) }))
		}
		once := []int{len(stopped.tenures(t, 0)), len(cut.tenures(t, 0))}
		stopped.signal(t, syscall.SIGCONT)
		cut.way.set(false)
		until(t, "both hold numbers again", func() bool {
			return len(stopped.tenures(t, 0)) > once[0] && len(cut.tenures(t, 0)) > once[1]
		})
		for _, h := range append(victims, heirs...) {
			h.kill()
		}
		until(t, "all numbers but the first are free", func() bool {
			taken, err := claimed(t, r)
			return err == nil && len(taken) == 1 && taken[0]
		})
	}
	var list []tenure
	for i, h := range all {
		list = append(list, h.tenures(t, i)...)
	}
	for i, a := range list {
		for _, b := range list[:i] {
			if a.process != b.process && a.number == b.number && a.from < b.to && b.from < a.to {
				t.Errorf("two at once: %+v and %+v", a, b)
			}
		}
	}
	require.GreaterOrEqual(t, len(list), 1+2*(3+3+2))
}

// etcd is killed and restarts after the leases' time. Holders hold no numbers meanwhile
// and have the same ones afterwards; watchers see no change of the servers.
func TestEtcdIsDownForLongerThanTheLeases(t *testing.T) {
	s := newEtcd(t, "http")
	s.start(t)
	// Longer than in short: a restarted etcd grants each lease one TTL.
	r := open(t, s.address, &Options{TTL: 4 * time.Second, Margin: time.Second, CallTimeout: time.Second})
	a, b := backend(t, r, "a:1"), backend(t, r, "b:1")
	first, second := held(t, a), held(t, b)
	fe, err := r.Frontend("fe")
	require.NoError(t, err)
	held(t, fe)
	w := watch(t, r.Source(fe))
	list := []string{fmt.Sprint(first, "=a:1"), fmt.Sprint(second, "=b:1")}
	slices.Sort(list)
	w.until(0, list...)
	s.kill()
	for _, n := range []*Number{a, b, fe} {
		until(t, "the number is lost", func() bool { _, ok := n.Get(); return !ok })
	}
	w.until(-1, list...)
	s.start(t)
	require.Equal(t, []int{first, second, 0}, []int{held(t, a), held(t, b), held(t, fe)})
	for {
		snapshot := <-w.updates
		require.Len(t, snapshot.Servers, 2)
		if snapshot.Self == 0 {
			break
		}
	}
}

// etcd is restored from a backup that has the leases of a row, and not the entry that was written later.
// The entry is written again, and watchers see what happens after the restoration.
func TestRestoredEtcd(t *testing.T) {
	s := newEtcd(t, "http")
	s.start(t)
	l := newLink(t, s.address)
	r := open(t, l.address(), &Options{TTL: 4 * time.Second, Margin: time.Second, CallTimeout: time.Second})
	a, err := r.Row(discovery.Server{Address: "a:1"}, RowOptions{Step: 1})
	require.NoError(t, err)
	first := held(t, a)
	s.kill()
	data := s.arguments[1]
	require.NoError(t, os.CopyFS(data+"-backup", os.DirFS(data)))
	s.start(t)
	w := watch(t, r.Source(nil))
	require.Equal(t, first, held(t, a))
	a.Show()
	w.until(-1, fmt.Sprint(first, "=a:1"))
	for range 20 { // revisions that are lost
		_, err := clientOf(t, r).Put(t.Context(), r.entries(backends)+"7", `{"address":"c:1"}`)
		require.NoError(t, err)
	}
	w.until(-1, fmt.Sprint(first, "=a:1"), "7=c:1")

	l.set(true)
	s.kill()
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.Rename(data+"-backup", data))
	s.start(t)
	l.set(false) // after the election, so that watches do not fail
	until(t, "the entry is there again", func() bool {
		v, err := r.read(t.Context())
		return err == nil && len(v.servers) == 1
	})
	require.Equal(t, first, held(t, a))
	list := []string{fmt.Sprint(first, "=a:1"), fmt.Sprint(held(t, backend(t, r, "b:1")), "=b:1")}
	slices.Sort(list)
	w.until(-1, list...)
}

// A holder whose claim is lost, although its leases live, does not hold the number for long.
func TestLostClaim(t *testing.T) {
	r := open(t, startEtcd(t), short)
	n := backend(t, r, "a:1")
	number := held(t, n)
	client := clientOf(t, r)
	_, err := client.Put(t.Context(), fmt.Sprint(r.claims(backends), number), "b:1") // of another process
	require.NoError(t, err)
	until(t, "another number is held", func() bool { other, ok := n.Get(); return ok && other != number })
}

// An entry with an invalid number is ignored, and its key is logged.
func TestKeyWithTooHighNumberIsIgnored(t *testing.T) {
	var log bytes.Buffer
	r, err := Open("etcd://127.0.0.1:1/search", &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	v := view{servers: map[int]discovery.Server{}, clients: map[int]bool{}}
	for _, number := range []string{"0", "1", "700000", "20251121", "x"} {
		r.apply(v, &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{
			Key: []byte(r.entries(backends) + number), Value: []byte(entry{Address: "be-" + number + ":7070"}.encode()),
		}})
	}
	snapshot := (&source{registry: r}).snapshot(v)
	require.Equal(t, 2, snapshot.Numbers)
	require.Len(t, snapshot.Servers, 2)
	for _, number := range []string{"700000", "20251121", "x"} {
		require.Contains(t, log.String(), r.entries(backends)+number)
	}
}
