package memcached

import (
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
	// DefaultTimeout is how long a call may take. A server in the same data
	// centre takes a hundredth of it.
	DefaultTimeout = 50 * time.Millisecond
	// FailuresToOpen is how many calls in a row fail before a server is left alone.
	FailuresToOpen = 3
	// MaxPause is the longest time between two questions whether it is back.
	MaxPause = 30 * time.Second
	// MaxItemBytes is the longest value that is kept: memcached's own limit of
	// 1 MiB, less what it needs for key and header.
	MaxItemBytes = 1<<20 - 1<<10
	// MaxIdleConnections to each server are kept for the next call.
	MaxIdleConnections = 64

	firstPause = time.Second
)

// Options say how servers are used. Nil and zero values are the defaults.
type Options struct {
	// Timeout of each call. The default is DefaultTimeout.
	Timeout time.Duration
	// FirstPause is how long a server that has failed is left alone before it is
	// asked again; each time that it is still away the pause doubles, up to
	// MaxPause, and so it does if it goes again within MaxPause. The default is a
	// second.
	FirstPause time.Duration
	// Logger is told when a server goes and comes. The default is silence.
	Logger *slog.Logger
}

// Servers are memcached servers.
type Servers struct {
	servers []*server
	closing sync.Once
	alive   chan struct{} // closed by Close
	probing sync.WaitGroup

	refused atomic.Uint64
}

// server is one of them, and whether it is in use.
type server struct {
	address string
	seed    uint64
	client  *memcache.Client
	logger  *slog.Logger
	pause   time.Duration // the first

	away     atomic.Bool
	failures atomic.Int32  // in a row
	gone     chan struct{} // has room for one: wakes the goroutine that asks whether it is back
}

// New returns the servers at the addresses, host:port each. Whether they are
// there shows when they are used.
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
	if len(addresses) == 0 {
		return nil, errors.New("memcached: no server is given")
	}
	s := &Servers{alive: make(chan struct{})}
	seen := make(map[string]bool)
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("memcached: server %q: %w; want host:port", address, err)
		}
		if seen[address] {
			return nil, fmt.Errorf("memcached: server %q is given twice", address)
		}
		seen[address] = true
		list := new(memcache.ServerList)
		if err := list.SetServers(address); err != nil {
			return nil, fmt.Errorf("memcached: server %q: %w", address, err)
		}
		client := memcache.NewFromSelector(list)
		client.Timeout, client.MaxIdleConns, client.DialContext = o.Timeout, MaxIdleConnections, dialBounded
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

// Close ends the goroutines and closes the connections that are idle. Nothing
// may be called later but Close.
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
	_, _ = h.Write([]byte(text)) // it never fails
	return h.Sum64()
}

// mix spreads the bits of x: the finalizer of SplitMix64 (Steele, Lea and Flood,
// Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Len is the number of servers.
func (s *Servers) Len() int { return len(s.servers) }

// Server is the number, from 0, of the server that keeps the key with the hash.
// Programs that share servers must hash alike.
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

// Up tells whether a server is in use.
func (s *Servers) Up(server int) bool { return !s.servers[server].away.Load() }

// Refused counts the values that a server in use did not take.
func (s *Servers) Refused() uint64 { return s.refused.Load() }

// Get returns the value of a key from its server. The value is the caller's.
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

// GetMany calls fn for those of the keys that the server has, in any order.
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

// Set has a key's server keep a value of up to MaxItemBytes until the time, the
// zero time for ever, or until it needs the room. It tells whether the server took it.
func (s *Servers) Set(server int, key string, value []byte, until time.Time) bool {
	one := s.servers[server]
	if len(value) > MaxItemBytes || one.away.Load() {
		return false
	}
	item := &memcache.Item{Key: key, Value: value}
	if seconds := until.Unix(); !until.IsZero() && seconds == int64(int32(seconds)) {
		item.Expiration = int32(max(1, seconds)) // as Unix time: it lies more than a month behind 1970
	}
	err := one.client.Set(item)
	if err != nil && !one.failed(err) {
		s.refused.Add(1)
	}
	return err == nil
}

// Delete makes a key not be there.
func (s *Servers) Delete(server int, key string) {
	if one := s.servers[server]; !one.away.Load() {
		one.failed(one.client.Delete(key))
	}
}

// failed takes down how a call went, and tells whether the server failed. One that
// answers is there, whatever it says.
func (s *server) failed(err error) bool {
	if err == nil || errors.Is(err, memcache.ErrCacheMiss) || strings.Contains(err.Error(), "SERVER_ERROR") {
		if s.failures.Load() != 0 {
			s.failures.Store(0)
		}
		return false
	}
	if s.failures.Add(1) >= FailuresToOpen && !s.away.Swap(true) {
		s.logger.Warn("the server does not answer; it is left alone until it does", "error", err)
		select {
		case s.gone <- struct{}{}:
		default:
		}
	}
	return true
}

// bringBack waits until the server has gone, and then until it is back.
func (s *server) bringBack(closed <-chan struct{}) {
	var pause time.Duration // the first one of this time
	var back time.Time      // when it was taken into use last
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
			_ = s.client.Close() // connections of before; it answers or it does not
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

// pauseAfter is how long a server is left alone at first when it has gone, which was
// left alone for before at first the last time and has been in use since. One that
// answers the question whether it is back, and no other, is soon gone again; callers
// wait for it until that is found out, so it is left alone for longer each time.
func (s *server) pauseAfter(before, inUse time.Duration) time.Duration {
	if inUse > MaxPause {
		return s.pause
	}
	return max(s.pause, min(2*before, MaxPause))
}
