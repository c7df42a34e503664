package sharded

import (
	"context"
	"fmt"

	"docstore/boxcarrpc"
	"docstore/docservice/placement"
)

// OnShard calls f with a pool of servers that hold a shard. While the error of f is that they
// do not serve it (docservice.ErrMoved, docservice.ErrUnavailable,
// docservice.ErrNoCollection), it calls f again with other servers, as Get does. Programs
// that pass on requests use it.
func (c *Client) OnShard(ctx context.Context, i int, f func(*boxcarrpc.Pool) error) error {
	s := search{client: c, routes: c.current()}
	if s.routes == nil {
		return ErrNoPlacement
	}
	for {
		err := ErrNoPlacement
		if one := s.routes.choose(i, s.place); one != nil {
			if err = f(one.pool); err == nil || !elsewhere(err) {
				return err
			}
		}
		if !s.next(ctx, err) {
			return fmt.Errorf("sharded: shard %d: %w", i, s.result(err))
		}
	}
}

// Placement returns the placement that the client follows, nil if none is known.
func (c *Client) Placement() *placement.Map {
	r := c.current()
	if r == nil {
		return nil
	}
	return r.placement
}
