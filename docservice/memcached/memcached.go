package memcached

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Limits and defaults.
const (
	// DefaultTimeout is the maximum duration of a call. A server in the same data centre
	// takes a hundredth of it.
	DefaultTimeout = 50 * time.Millisecond
	// FailuresToOpen is the number of consecutive failures that mark a server as down.
	FailuresToOpen = 3
	// MaxPause is the maximum time between two probes.
	MaxPause = 30 * time.Second
	// MaxItemBytes is the maximum length of a value: memcached's limit of 1 MiB less the
	// space for key and header.
	MaxItemBytes = 1<<20 - 1<<10
	// MaxIdleConnections is the number of idle connections kept to each server.
	MaxIdleConnections = 64

	firstPause = time.Second
)

// DialFunc connects to a server, as the DialContext method of net.Dialer.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Options configure the use of servers. Nil and zero values select the defaults.
type Options struct {
	// Timeout is the maximum duration of a call. The default is DefaultTimeout.
	Timeout time.Duration
	// FirstPause is the time from the failure of a server to the first probe. It doubles
	// after each failed probe, up to MaxPause, and also if the server fails again within
	// MaxPause. The default is one second.
	FirstPause time.Duration
	// Logger logs when a server goes down and comes up. The default discards the log.
	Logger *slog.Logger
	// Dial connects to a server. The default is that of a net.Dialer.
	Dial DialFunc
}

// Servers is a set of memcached servers.
type Servers struct {
	servers []*server
	closing sync.Once
	alive   chan struct{} // closed by Close
	probing sync.WaitGroup

	refused atomic.Uint64
}

// server is one server and its state.
type server struct {
	address string
	seed    uint64
	client  *memcache.Client
	logger  *slog.Logger
	pause   time.Duration // the first pause

	away     atomic.Bool
	failures atomic.Int32  // consecutive
	gone     chan struct{} // capacity 1: wakes the goroutine that probes the server
}

// New returns the servers at the addresses, host:port each. It does not connect to them.
func New(addresses []string, opts *Options) (*Servers, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.FirstPause <= 0 {
		o.FirstPause = firstPause
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if len(addresses) == 0 {
		return nil, errors.New("memcached: no server address")
	}
	s := &Servers{alive: make(chan struct{})}
	seen := make(map[string]bool)
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("memcached: server %q: %w; want host:port", address, err)
		}
		if seen[address] {
			return nil, fmt.Errorf("memcached: duplicate server address %q", address)
		}
		seen[address] = true
		list := new(memcache.ServerList)
		if err := list.SetServers(address); err != nil {
			return nil, fmt.Errorf("memcached: server %q: %w", address, err)
		}
		client := memcache.NewFromSelector(list)
		client.Timeout, client.MaxIdleConns, client.DialContext = o.Timeout, MaxIdleConnections, dialBounded(o.Dial)
		s.servers = append(s.servers, &server{
			address: address, seed: hash(address), client: client,
			logger: o.Logger.With("memcached", address), pause: o.FirstPause, gone: make(chan struct{}, 1),
		})
	}
	for _, one := range s.servers {
		s.probing.Go(func() { one.bringBack(s.alive) })
	}
	return s, nil
}

// Close stops the goroutines and closes idle connections. Only Close may be called
// afterwards.
func (s *Servers) Close() error {
	s.closing.Do(func() { close(s.alive) })
	s.probing.Wait()
	var errs []error
	for _, one := range s.servers {
		errs = append(errs, one.client.Close())
	}
	return errors.Join(errs...)
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// mix spreads the bits of x: the finalizer of SplitMix64 (Steele, Lea and Flood,
// Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Len returns the number of servers.
func (s *Servers) Len() int { return len(s.servers) }

// Server returns the number, from 0, of the server to which the key with the hash belongs.
// Programs that share servers must compute the same hashes.
func (s *Servers) Server(hash uint64) int {
	if len(s.servers) == 1 {
		return 0
	}
	best, score := 0, uint64(0)
	for i, one := range s.servers {
		if mine := mix(hash ^ one.seed); mine >= score {
			best, score = i, mine
		}
	}
	return best
}

// Up reports whether a server is up.
func (s *Servers) Up(server int) bool { return !s.servers[server].away.Load() }

// Refused returns the number of values that a server refused to store.
func (s *Servers) Refused() uint64 { return s.refused.Load() }

// Get returns the value of a key from its server. The caller owns the value.
func (s *Servers) Get(server int, key string) (value []byte, ok bool) {
	one := s.servers[server]
	if one.away.Load() {
		return nil, false
	}
	item, err := one.client.Get(key)
	if one.failed(err) || item == nil {
		return nil, false
	}
	return item.Value, true
}

// GetMany calls fn for each of the keys that the server has, in any order.
func (s *Servers) GetMany(server int, keys []string, fn func(key string, value []byte)) {
	one := s.servers[server]
	if len(keys) == 0 || one.away.Load() {
		return
	}
	items, err := one.client.GetMulti(keys)
	one.failed(err)
	for key, item := range items {
		fn(key, item.Value)
	}
}

// Set stores a value of up to MaxItemBytes until the time, the zero time meaning no expiry.
// The server may evict it earlier. Set reports whether the server stored it.
func (s *Servers) Set(server int, key string, value []byte, until time.Time) bool {
	one := s.servers[server]
	if len(value) > MaxItemBytes || one.away.Load() {
		return false
	}
	item := &memcache.Item{Key: key, Value: value}
	if seconds := until.Unix(); !until.IsZero() && seconds == int64(int32(seconds)) {
		item.Expiration = int32(max(1, seconds)) // as Unix time, since it is more than a month
	}
	err := one.client.Set(item)
	if err != nil && !one.failed(err) {
		s.refused.Add(1)
	}
	return err == nil
}

// Delete deletes a key.
func (s *Servers) Delete(server int, key string) {
	if one := s.servers[server]; !one.away.Load() {
		one.failed(one.client.Delete(key))
	}
}

// failed records the result of a call, and reports whether the server failed. A server that
// answers with an error has not failed.
func (s *server) failed(err error) bool {
	if err == nil || errors.Is(err, memcache.ErrCacheMiss) || strings.Contains(err.Error(), "SERVER_ERROR") {
		if s.failures.Load() != 0 {
			s.failures.Store(0)
		}
		return false
	}
	if s.failures.Add(1) >= FailuresToOpen && !s.away.Swap(true) {
		s.logger.Warn("the server does not answer; it is marked as down", "error", err)
		select {
		case s.gone <- struct{}{}:
		default:
		}
	}
	return true
}

// bringBack waits until the server is down, and probes it until it is up.
func (s *server) bringBack(closed <-chan struct{}) {
	var pause time.Duration // the first pause of this outage
	var back time.Time      // when it last came up
	for {
		select {
		case <-s.gone:
		case <-closed:
			return
		}
		pause = s.pauseAfter(pause, time.Since(back))
		for wait := pause; ; wait = min(2*wait, MaxPause) {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-closed:
				timer.Stop()
				return
			}
			_ = s.client.Close() // connections from before the outage
			if s.client.Ping() == nil {
				break
			}
		}
		s.logger.Info("the server answers again")
		back = time.Now()
		s.failures.Store(0)
		s.away.Store(false)
	}
}

// pauseAfter returns the first pause of an outage: before is the first pause of the
// previous one, and inUse the time the server was up since. A server that answers only
// probes soon fails again, and callers wait for it each time, so its first pause grows.
func (s *server) pauseAfter(before, inUse time.Duration) time.Duration {
	if inUse > MaxPause {
		return s.pause
	}
	return max(s.pause, min(2*before, MaxPause))
}
