package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/internal/ctxtime"
)

const (
	// MaxMoveWait bounds the time for which a call looks for the holder of a shard whose
	// servers answer that it has moved. The context may end the call earlier.
	MaxMoveWait = 10 * time.Second
	// firstMoveWait is the first pause before another attempt with the same placement; it
	// doubles with each one.
	firstMoveWait = 5 * time.Millisecond
	maxMoveWait   = 500 * time.Millisecond
	// maxRefresh bounds the time for which an attempt waits for the placement, while etcd is
	// away. The source follows the placement meanwhile.
	maxRefresh = 250 * time.Millisecond
	// maxUnavailable is the number of answers with the same placement after which an id is
	// unavailable.
	maxUnavailable = 3
)

// search is the state of a call that looks for the servers of shards that have moved or are
// unavailable.
type search struct {
	client      *Client
	routes      *routes
	place       int // of routes.choose
	attempts    int
	unavailable int  // answers of holders
	dead        bool // the holder has no server
	started     time.Time
	wait        time.Duration
}

// next prepares another attempt after one that failed with err: it reads the placement
// again, and waits if it has not changed. It returns false if the call ends with err.
//
// If the holder has no server, next does neither: the other columns that may serve the shard
// are asked once. All calls for a dead column would read the placement.
func (s *search) next(ctx context.Context, err error) bool {
	if s.attempts == 0 {
		s.started, s.wait = time.Now(), firstMoveWait
	}
	s.attempts++
	noServer := !moved(err) && errors.Is(err, boxcarrpc.ErrNoServer)
	switch {
	case noServer && s.place%places == 0:
		s.dead = true
	case !moved(err) && !noServer:
		s.unavailable++
	}
	if s.unavailable >= maxUnavailable || time.Since(s.started) > MaxMoveWait {
		return false
	}
	if !s.dead {
		limited, cancel := context.WithTimeout(ctx, maxRefresh)
		_ = s.client.source.Refresh(limited, s.routes.placement.Epoch) // the last placement stays in use
		cancel()
	}
	before := s.routes
	if s.routes = s.client.current(); s.routes != before {
		s.place, s.unavailable, s.dead, s.wait = 0, 0, false, firstMoveWait
		return ctx.Err() == nil
	}
	s.place++
	switch {
	case s.place%places != 0 && (s.dead || noServer || moved(err)):
		return ctx.Err() == nil // ask the other columns that may serve the shard
	case s.dead:
		return false
	}
	if !ctxtime.Sleep(ctx, s.wait) {
		return false
	}
	s.wait = min(2*s.wait, maxMoveWait)
	s.routes = s.client.current()
	return true
}

// moved reports whether the server does not serve the shard.
func moved(err error) bool {
	return errors.Is(err, docservice.ErrMoved) || errors.Is(err, docservice.ErrNoCollection) || errors.Is(err, ErrNoPlacement)
}

// result returns the error of the call. That a shard has moved is an internal state: for
// the caller the document is unavailable.
func (s *search) result(err error) error {
	if moved(err) && !errors.Is(err, docservice.ErrUnavailable) {
		return fmt.Errorf("%w: sharded: %d attempts, placement epoch %d: %w", docservice.ErrUnavailable, s.attempts, s.routes.placement.Epoch, err)
	}
	return err
}
