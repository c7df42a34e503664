package discovery

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// CheckAddress returns an error if an address is not HOST:PORT, as for net.Dial with TCP.
// It does not use the network. The port is a number or the name of a service.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	switch {
	case err != nil && !strings.Contains(address, ":"):
		return fmt.Errorf("address %s has no port; write HOST:PORT, such as %[1]s:7070", address)
	case err != nil:
		return fmt.Errorf("%w; write HOST:PORT, or [HOST]:PORT for an IPv6 address", err) // names the address
	}
	if number, err := net.LookupPort("tcp", port); err != nil || number == 0 {
		return fmt.Errorf("address %s: %s is not a port; write a number from 1 to 65535", address, port)
	}
	return nil
}

// Static returns a source with a constant set: the given addresses, numbered from 0 in
// the given order. Repeated addresses are ignored.
func Static(addresses ...string) Source {
	servers := make([]Server, 0, len(addresses))
	seen := make(map[string]bool, len(addresses))
	for _, address := range addresses {
		if !seen[address] {
			seen[address] = true
			servers = append(servers, Server{Number: len(servers), Address: address})
		}
	}
	return static{Snapshot{Servers: servers, Numbers: len(servers), Self: -1}}
}

type static struct{ snapshot Snapshot }

// Watch reports the set once.
func (s static) Watch(ctx context.Context, update func(Snapshot)) error {
	update(s.snapshot)
	<-ctx.Done()
	return ctx.Err()
}

// Addresses implements [Fixed].
func (s static) Addresses() []string {
	addresses := make([]string, len(s.snapshot.Servers))
	for i, server := range s.snapshot.Servers {
		addresses[i] = server.Address
	}
	return addresses
}
