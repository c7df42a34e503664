package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	port = 7070
	// What a request takes in a handler.
	handling = 500 * time.Microsecond
	// How long a server that is told to end may take.
	grace = 5 * time.Second
)

// asChild is the variable of the environment that makes a process a server, and says
// of which rival.
const asChild = "CHAOS_SERVES"

// The files that a server's process gets besides the standard ones.
const (
	listenerFD = 3 + iota
	accountFD
)

// errFalsified is what a server answers to a request that is no caller's.
var errFalsified = errors.New("a request that nobody sent")

// A served is a rival's server: it calls handle for each request, until stop.
type served interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// serveAsChild is the server's process.
func serveAsChild(rival string) error {
	r, err := rivalNamed(rival)
	if err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	a, err := openAccount(os.NewFile(accountFD, "account"))
	if err != nil {
		return err
	}
	s := r.server(func(request, dst []byte) ([]byte, error) {
		call, ok := callOf(request)
		if !ok {
			return dst, errFalsified
		}
		a.begun(call)
		time.Sleep(handling)
		return appendResponse(dst, call), nil
	})
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
	rival   string
	account *os.File
	process *exec.Cmd // nil: it does not run
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
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s.process = exec.Command(program)
	s.process.Env = append(os.Environ(), asChild+"="+s.rival)
	s.process.Stderr = os.Stderr
	s.process.ExtraFiles = []*os.File{file, s.account}
	return s.process.Start()
}

func (s *server) signal(what syscall.Signal) error { return s.process.Process.Signal(what) }

// end sends a signal that ends the server and waits until it has.
func (s *server) end(what syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	err := s.signal(what)
	waited := s.process.Wait()
	s.process = nil
	if what == syscall.SIGKILL {
		return err
	}
	return errors.Join(err, waited)
}
