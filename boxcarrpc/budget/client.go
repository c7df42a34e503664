package budget

import (
	"net"
	"net/netip"
)

// A Client identifies a client, for limits and shares. It is comparable. The zero value is
// the client of all peers without a name and an IP address, as on Unix sockets.
type Client struct {
	name    string       // of the authenticated identity, if there is one
	network netip.Prefix // else the network of its address
}

// ClientNamed returns the client with the name of an authenticated identity.
func ClientNamed(name string) Client { return Client{name: name} }

// ClientAt returns the client at an address: all peers with the same IP address, of IPv6 with
// the same first 64 bits. A host with one IPv6 address usually has 2^64.
func ClientAt(address net.Addr) Client {
	port, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return Client{}
	}
	ip := port.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return Client{}
	}
	return Client{network: network}
}
