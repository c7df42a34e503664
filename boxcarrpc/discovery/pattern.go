package discovery

import (
	"context"
	"fmt"
)

// Pattern is the source of n numbered servers whose addresses are format with
// the number put in, as in
//
//	Pattern("be-%d.search:7070", 300)
//
// It holds no list between watches: a source of a million servers is two words
// long, and each watch makes the addresses anew. A negative n is an empty set, and one
// over MaxNumber+1 is that many.
func Pattern(format string, n int) Source { return pattern{format, min(max(n, 0), MaxNumber+1)} }

type pattern struct {
	format string
	n      int
}

// Watch reports the set once.
func (p pattern) Watch(ctx context.Context, update func(Snapshot)) error {
	servers := make([]Server, p.n)
	for i := range servers {
		servers[i] = Server{Number: i, Address: fmt.Sprintf(p.format, i)}
	}
	update(Snapshot{Servers: servers, Numbers: p.n, Self: -1})
	<-ctx.Done()
	return ctx.Err()
}
