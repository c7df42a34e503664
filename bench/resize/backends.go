package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/authority"
	"docstore/boxcarrpc"
)

const (
	// maxBackends is limited by the addresses. Each backend has a different address from
	// 127.0.60.1 on, so that clients have a TLS session per server.
	maxBackends = 250
	backendPort = 7070
	// drainTimeout is how long a backend that ends may take.
	drainTimeout = 3 * time.Second
	// service is the mean time that a backend takes for a request.
	service           = 20 * time.Millisecond
	workersPerBackend = 4 // concurrent requests
)

func addressOf(n int) string { return net.JoinHostPort(hostOf(n), fmt.Sprint(backendPort)) }
func hostOf(n int) string    { return fmt.Sprintf("127.0.60.%d", n+1) }

// backends are the running servers by number.
type backends struct {
	authority *authority.Authority
	mu        sync.Mutex
	running   map[int]*backend
}

type backend struct {
	server *boxcarrpc.Server
	served chan error
}

// start starts backends, on the same addresses as before.
func (b *backends) start(first, last int) error {
	return each(first, last, func(n int) error {
		certificate, err := b.authority.Issue(net.ParseIP(hostOf(n)))
		if err != nil {
			return err
		}
		config := &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, ClientCAs: b.authority.Pool, ClientAuth: tls.RequireAndVerifyClientCert,
		}
		listener, err := net.Listen("tcp", addressOf(n))
		if err != nil {
			return err
		}
		x := &backend{boxcarrpc.NewServer(handler(), &boxcarrpc.ServerOptions{TLS: authority.Always(config)}), make(chan error, 1)}
		go func() { x.served <- x.server.Serve(listener) }()
		b.mu.Lock()
		b.running[n] = x
		b.mu.Unlock()
		return nil
	})
}

// handler returns a handler with a random service time and a few workers.
func handler() boxcarrpc.Handler {
	workers := make(chan struct{}, workersPerBackend)
	return func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		select {
		case workers <- struct{}{}:
		case <-ctx.Done():
			return dst, ctx.Err()
		}
		time.Sleep(service/2 + rand.N(service))
		<-workers
		return append(dst, "done"...), nil
	}
}

// stop drains and stops backends.
func (b *backends) stop(first, last int) error {
	return each(first, last, func(n int) error {
		b.mu.Lock()
		x := b.running[n]
		delete(b.running, n)
		b.mu.Unlock()
		return x.end()
	})
}

func (x *backend) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	// Close the remaining connections after the timeout, like a supervisor.
	if err := x.server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	err := x.server.Close()
	if served := <-x.served; !errors.Is(served, boxcarrpc.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (b *backends) close() (err error) {
	for n := range b.running {
		err = errors.Join(err, b.stop(n, n))
	}
	return err
}

// each calls a function for several tasks concurrently.
func each(first, last int, do func(n int) error) error {
	var doing errgroup.Group
	for n := first; n <= last; n++ {
		doing.Go(func() error { return do(n) })
	}
	return doing.Wait()
}
