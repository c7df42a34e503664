package discovery

import "context"

// Static is the source of a set that never changes: the given addresses,
// numbered from 0 in the order given. An address given twice is one server, at
// its first place.
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
