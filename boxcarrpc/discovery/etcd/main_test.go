//go:build linux

package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"docstore/internal/freeport"
	"docstore/internal/testprogram"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(holderTarget); target != "" {
		hold(target, os.Getenv(holderLog))
		return
	}
	goleak.VerifyTestMain(m)
}

// short has the shortest leases that the tests' etcd grants.
var short = &Options{TTL: time.Second, Margin: 250 * time.Millisecond, CallTimeout: 500 * time.Millisecond}

// startEtcd runs a real etcd and returns its address.
func startEtcd(t testing.TB) (address string) {
	t.Helper()
	s := newEtcd(t, "http")
	s.start(t)
	return s.address
}

// An etcdServer is a real etcd that a test can stop and restart.
type etcdServer struct {
	address   string
	program   string
	options   string // options of its targets
	command   *exec.Cmd
	arguments []string
}

func newEtcd(t testing.TB, scheme string, arguments ...string) *etcdServer {
	t.Helper()
	program := testprogram.Path(t, "etcd")
	// The ports are most likely still free when etcd listens.
	address, peer := freeport.Address(t), freeport.Address(t)
	s := &etcdServer{address: address, program: program, arguments: append([]string{
		"--data-dir", filepath.Join(t.TempDir(), "data"), "--unsafe-no-fsync",
		"--heartbeat-interval", "20", "--election-timeout", "200", // with the default the shortest lease is 2 s
		"--listen-client-urls", scheme + "://" + address, "--advertise-client-urls", scheme + "://" + address,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", "default=http://" + peer,
	}, arguments...)}
	t.Cleanup(func() { s.kill() })
	return s
}

// start starts etcd and waits until it answers.
func (s *etcdServer) start(t testing.TB) {
	t.Helper()
	s.command = exec.Command(s.program, s.arguments...)
	require.NoError(t, s.command.Start())
	r, err := Open(s.target(s.options), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	until(t, "etcd answers", func() bool {
		_, err := r.read(t.Context())
		return err == nil
	})
}

func (s *etcdServer) kill() {
	if s.command != nil {
		_ = s.command.Process.Kill() // it may have exited
		_ = s.command.Wait()         // killed
		s.command = nil
	}
}

func (s *etcdServer) target(options string) string {
	return "etcd://" + s.address + "/search" + options
}

func open(t testing.TB, address string, opts *Options) *Registry {
	t.Helper()
	r, err := Open("etcd://"+address+"/search", opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A link is a proxy to etcd that a test can cut.
type link struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup
	mu       struct {
		sync.Mutex
		cut   bool
		conns map[net.Conn]bool
	}
}

func newLink(t *testing.T, to string) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, to: to}
	l.mu.conns = map[net.Conn]bool{}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.set(true)
		l.running.Wait()
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil || !l.keep(in, out) {
			_ = in.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			l.running.Go(func() {
				buffer := make([]byte, 4<<10)
				for {
					n, err := pair[0].Read(buffer)
					if err == nil {
						_, err = pair[1].Write(buffer[:n])
					}
					if err != nil {
						_, _ = pair[0].Close(), pair[1].Close()
						return
					}
				}
			})
		}
	}
}

func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.mu.cut {
			_ = c.Close()
			continue
		}
		l.mu.conns[c] = true
	}
	return !l.mu.cut
}

// set cuts or restores the link.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = cut
	if cut {
		for c := range l.mu.conns {
			_ = c.Close()
		}
		clear(l.mu.conns)
	}
}

// The environment of a process that holds a number and logs when. Tests start, stop and
// kill it.
const holderTarget, holderLog = "ETCD_TEST_HOLDER", "ETCD_TEST_LOG"

func hold(target, path string) {
	r, err := Open(target, short)
	if err != nil {
		panic(err)
	}
	number, err := r.Frontend(fmt.Sprint(os.Getpid()))
	if err != nil {
		panic(err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := number.Wait(context.Background()); err != nil {
		panic(err)
	}
	for ; ; time.Sleep(time.Millisecond) {
		before := monotonic()
		if n, ok := number.Get(); ok {
			_, err = fmt.Fprintln(log, n, before, monotonic())
		} else {
			_, err = fmt.Fprintln(log, -1, before, monotonic())
		}
		if err != nil {
			panic(err)
		}
	}
}

func clientOf(t testing.TB, r *Registry) *clientv3.Client {
	client, err := r.etcd()
	require.NoError(t, err)
	return client
}
