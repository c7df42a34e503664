package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/placement"
)

// OnShard calls f with a pool of servers that hold a shard. While the error of f is that they
// do not serve it (docservice.ErrMoved, docservice.ErrUnavailable,
// docservice.ErrNoCollection), it calls f again with other servers, as Get does: with another
// pool, or the same one if f uses info for its call, which names the servers that have been
// asked. Programs that pass on requests use it.
func (c *Client) OnShard(ctx context.Context, i int, f func(pool *boxcarrpc.Pool, info *boxcarrpc.CallInfo) error) error {
	s := search{client: c, routes: c.current()}
	var (
		pool *boxcarrpc.Pool // of info
		info boxcarrpc.CallInfo
	)
	if s.routes == nil {
		return ErrNoPlacement
	}
	for {
		err := ErrNoPlacement
		if one := s.routes.choose(i, s.place); one != nil {
			if one.pool != pool {
				pool, info = one.pool, boxcarrpc.CallInfo{}
			}
			if err = f(pool, &info); err == nil || !elsewhere(err) {
				return err
			}
			others := !slices.Contains(info.Avoid, info.Server)
			info.Avoid = append(info.Avoid, info.Server)
			if others && serverAnswered(err) && len(info.Avoid) < maxUnavailable {
				continue
			}
		}
		if !s.next(ctx, err) {
			return fmt.Errorf("sharded: shard %d: %w", i, s.result(err))
		}
	}
}

// serverAnswered reports whether err is the answer of a working server that the shard is
// unavailable there. Then another server is asked at once; after the failure of a call, which
// the pool has retried within its budget, not.
func serverAnswered(err error) bool {
	var call *boxcarrpc.Error
	return errors.Is(err, docservice.ErrUnavailable) && !errors.As(err, &call)
}

// Placement returns the placement that the client follows, nil if none is known.
func (c *Client) Placement() *placement.Map {
	r := c.current()
	if r == nil {
		return nil
	}
	return r.placement
}
