package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"docstore/bench/internal/process"
	"docstore/boxcarrpc"
)

const (
	port = 7070
	// The time of a request in the handler.
	handling = 500 * time.Microsecond
	// The time for a server to stop after SIGTERM.
	grace = 5 * time.Second
)

// The files that a server's process gets besides the standard ones.
const (
	listenerFD = 3 + iota
	accountFD
)

// errCorrupted answers a corrupted request.
var errCorrupted = errors.New("chaos: corrupted request")

// serveAsChild runs the server's process.
func serveAsChild() error {
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	a, err := openAccount(os.NewFile(accountFD, "account"))
	if err != nil {
		return err
	}
	s := boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		call, ok := callOf(request)
		if !ok {
			return dst, errCorrupted
		}
		a.begun(call)
		time.Sleep(handling)
		return appendResponse(dst, call), nil
	}, &boxcarrpc.ServerOptions{Insecure: true})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	return <-ended
}

// A server is one of the servers as this program sees it.
type server struct {
	host    *host
	account *os.File
	process *process.Process // nil while it does not run
}

func (s *server) address() string {
	return fmt.Sprintf("%d.%d.%d.%d:%d", s.host.ip[0], s.host.ip[1], s.host.ip[2], s.host.ip[3], port)
}

// start starts the server, which is ready when start returns: it has a listener.
func (s *server) start() error {
	l, err := s.host.listen(port)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the process has its own
	file, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	cmd := process.Child("server")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{file, s.account}
	s.process, err = process.Start("server", cmd)
	return err
}

func (s *server) signal(what syscall.Signal) error { return s.process.Cmd.Process.Signal(what) }

// end ends the server with a signal and waits for it.
func (s *server) end(what syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	p := s.process
	s.process = nil
	return p.End(what)
}
