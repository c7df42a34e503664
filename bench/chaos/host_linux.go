package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	tunName  = "chaos0"
	mtu      = 1400
	namesake = "/proc/thread-self/ns/net"
)

// A host is a network namespace with one interface, whose packets the link carries.
type host struct {
	ip  [4]byte
	ns  *os.File
	tun *os.File
}

// newHost creates the namespace of a host. It requires root.
func newHost(number int) (*host, error) {
	h := &host{ip: [4]byte{10, 99, 0, byte(number)}}
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("creating a network namespace: %w", err)
		}
		var err error
		if h.ns, err = os.Open(namesake); err != nil {
			return err
		}
		h.tun, err = openTun(h.ip)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *host) Close() (err error) {
	for _, f := range []*os.File{h.tun, h.ns} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// onOwnThread runs fn on a locked thread and restores its namespace afterwards.
func onOwnThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(namesake)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = home.Close() }() // it was only read
	err = fn()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// in runs fn in the host's namespace. Sockets stay in the namespace in which they were created.
func (h *host) in(fn func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

func (h *host) listen(port int) (l *net.TCPListener, err error) {
	err = h.in(func() error {
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: h.ip[:], Port: port})
		return err
	})
	return l, err
}

func (h *host) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = h.in(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp4", address)
		return err
	})
	return conn, err
}

// openTun creates and configures the interface of the current namespace.
func openTun(ip [4]byte) (*os.File, error) {
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(tunName)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(tun, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = configure(ip)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", tunName, err), unix.Close(tun))
	}
	return os.NewFile(uintptr(tun), tunName), nil
}

func configure(ip [4]byte) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }() // it sent only ioctls
	for _, step := range []struct {
		request uint
		set     func(*unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r, err := unix.NewIfreq(tunName)
		if err != nil {
			return err
		}
		if err := step.set(r); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, step.request, r); err != nil {
			return fmt.Errorf("request %#x: %w", step.request, err)
		}
	}
	return nil
}
