package discovery

import (
	"context"
	"fmt"
)

// Pattern returns a source with n numbered servers, whose addresses are format with the
// number inserted:
//
//	Pattern("be-%d.search:7070", 300)
//
// Each watch makes the list of addresses; the source stores none. A negative n means an
// empty set. Watch fails with a [NumberError] if n is above MaxNumber+1.
func Pattern(format string, n int) Source { return pattern{format, max(n, 0)} }

type pattern struct {
	format string
	n      int
}

// Watch reports the set once.
func (p pattern) Watch(ctx context.Context, update func(Snapshot)) error {
	if p.n > MaxNumber+1 {
		return &NumberError{Source: "pattern " + p.format, Number: p.n - 1, Limit: MaxNumber + 1}
	}
	servers := make([]Server, p.n)
	for i := range servers {
		servers[i] = Server{Number: i, Address: fmt.Sprintf(p.format, i)}
	}
	update(Snapshot{Servers: servers, Numbers: p.n, Self: -1})
	<-ctx.Done()
	return ctx.Err()
}

// Addresses implements [Fixed]. It returns the first address only.
func (p pattern) Addresses() []string {
	if p.n == 0 {
		return nil
	}
	return []string{fmt.Sprintf(p.format, 0)}
}
