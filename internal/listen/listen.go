// Package listen opens the listeners of commands and servers.
package listen

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// TCP opens a listener; flag is the name of its flag, for errors. An IPv4 address, also
// 0.0.0.0, accepts only IPv4 connections: package net would open 0.0.0.0 for IPv6 too. An
// address without a host, and [::], accept both.
func TCP(flag, address string) (net.Listener, error) {
	network := "tcp"
	if resolved, err := net.ResolveTCPAddr(network, address); err == nil && resolved.IP.To4() != nil {
		network = "tcp4"
	}
	listener, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: the address is in use; stop the process that uses it, or choose another", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return listener, nil
}
