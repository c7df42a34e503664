package memcached_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice/memcached"
	"docstore/docservice/memcached/memcachedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, addresses ...string) *memcached.Servers {
	t.Helper()
	s, err := memcached.New(addresses, &memcached.Options{Timeout: time.Second, FirstPause: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func getMany(s *memcached.Servers, keys ...string) map[string][]byte {
	values := make(map[string][]byte)
	s.GetMany(0, keys, func(key string, value []byte) { values[key] = value })
	return values
}

// patience is the timeout of waits, long enough for a slow machine.
const patience = 3 * time.Minute

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, time.Millisecond, what)
}

func TestServers(t *testing.T) {
	s := open(t, memcachedtest.Start(t).Address)
	var keys []string
	for i := range 200 {
		key := fmt.Sprint("key-", i)
		keys = append(keys, key)
		require.True(t, s.Set(0, key, []byte("value of "+key), time.Time{}))
	}
	value, ok := s.Get(0, "key-7")
	require.True(t, ok)
	require.Equal(t, "value of key-7", string(value))
	s.Delete(0, "key-7")
	s.Delete(0, "key-7") // already deleted
	_, ok = s.Get(0, "key-7")
	require.False(t, ok)
	values := getMany(s, append(keys, "none")...)
	require.Len(t, values, 199)
	require.Equal(t, "value of key-8", string(values["key-8"]))

	require.True(t, s.Set(0, "old", []byte("x"), time.Unix(1_500_000_000, 0)))
	_, ok = s.Get(0, "old")
	require.False(t, ok, "it has expired")
	require.True(t, s.Set(0, "late", []byte("x"), time.Unix(1<<33, 0)))
	_, ok = s.Get(0, "late")
	require.True(t, ok, "a time beyond the range of an item means no expiry")

	largest := make([]byte, memcached.MaxItemBytes)
	require.True(t, s.Set(0, "largest", largest, time.Time{}))
	require.False(t, s.Set(0, "larger", make([]byte, memcached.MaxItemBytes+1), time.Time{}))
	require.Zero(t, s.Refused())
}

// The keys are distributed over the servers; an added server takes its share and moves no
// other keys.
func TestKeysOfServers(t *testing.T) {
	two, three := open(t, "127.0.0.1:1", "127.0.0.1:2"), open(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	count := make([]int, 3)
	for i := range 30_000 {
		n := three.Server(uint64(i))
		count[n]++
		if n < 2 {
			require.Equal(t, n, two.Server(uint64(i)))
		}
	}
	for _, n := range count {
		assert.InDelta(t, 10_000, n, 500)
	}
}

// A server that refuses an item is not down.
func TestRefusedItem(t *testing.T) {
	server := memcachedtest.Start(t, "-I", "512k")
	s := open(t, server.Address)
	for range 2 * memcached.FailuresToOpen {
		require.False(t, s.Set(0, "large", make([]byte, 600_000), time.Time{}))
	}
	require.EqualValues(t, 2*memcached.FailuresToOpen, s.Refused())
	require.True(t, s.Up(0))
	require.True(t, s.Set(0, "small", []byte("x"), time.Time{}))
}

// A killed server is marked as down and comes back empty; a stopped one comes back with its
// items.
func TestServerRestarts(t *testing.T) {
	server := memcachedtest.Start(t)
	s := open(t, server.Address)
	require.True(t, s.Set(0, "key", []byte("value"), time.Time{}))
	server.Kill()
	eventually(t, "the server is down", func() bool { s.Get(0, "key"); return !s.Up(0) })
	_, ok := s.Get(0, "key")
	require.False(t, ok)
	require.False(t, s.Set(0, "key", []byte("value"), time.Time{}))
	s.Delete(0, "key")
	require.Empty(t, getMany(s, "key"))
	server.Restart()
	eventually(t, "the server is up", func() bool { return s.Up(0) })
	_, ok = s.Get(0, "key")
	require.False(t, ok, "it has come back empty")
	require.True(t, s.Set(0, "key", []byte("value"), time.Time{}))
}

func TestServerHangs(t *testing.T) {
	server := memcachedtest.Start(t)
	s, err := memcached.New([]string{server.Address}, &memcached.Options{Timeout: 20 * time.Millisecond, FirstPause: time.Millisecond})
	require.NoError(t, err)
	defer s.Close()
	eventually(t, "a value is stored", func() bool { return s.Set(0, "key", []byte("value"), time.Time{}) })
	server.Signal(syscall.SIGSTOP)
	eventually(t, "the server is down", func() bool { s.Get(0, "key"); return !s.Up(0) })
	server.Signal(syscall.SIGCONT)
	eventually(t, "the server is up with its items", func() bool {
		value, ok := s.Get(0, "key")
		return ok && string(value) == "value"
	})
}

// Many callers use a server that stops and restarts; none of them gets a wrong value, and
// in the end it is up.
func TestConcurrentCallersWhileServerRestarts(t *testing.T) {
	server := memcachedtest.Start(t)
	s := open(t, server.Address)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for caller := range 8 {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint(caller, "-", i%50)
				s.Set(0, key, []byte(key), time.Time{})
				if value, ok := s.Get(0, key); ok && string(value) != key {
					t.Errorf("%s: got %q", key, value)
				}
				for key, value := range getMany(s, key, "none") {
					assert.Equal(t, key, string(value))
				}
			}
		})
	}
	for range 3 {
		server.Kill()
		eventually(t, "the server is down", func() bool { return !s.Up(0) })
		server.Restart()
		eventually(t, "the server is up", func() bool { return s.Up(0) })
	}
	close(stop)
	running.Wait()
}

// A server of another protocol is marked as down and does no harm.
func TestNoMemcached(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("VALUE x 0 99999999999999999999\r\nHTTP/1.1 200\r\n"))
			_ = conn.Close()
		}
	})
	s := open(t, listener.Addr().String())
	for range memcached.FailuresToOpen {
		_, ok := s.Get(0, "key")
		require.False(t, ok)
	}
	require.False(t, s.Up(0))
	require.NoError(t, listener.Close())
	serving.Wait()
}

func TestNewRefuses(t *testing.T) {
	for _, addresses := range [][]string{nil, {"host"}, {"127.0.0.1:99999"}, {"127.0.0.1:1", "127.0.0.1:1"}} {
		_, err := memcached.New(addresses, nil)
		require.ErrorContains(t, err, "memcached: ", strings.Join(addresses, ","))
	}
}
