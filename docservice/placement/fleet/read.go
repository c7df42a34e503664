package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/ctxtime"
)

// state is what the keys of a collection hold.
type state struct {
	placement *placement.Map
	states    []placement.ServerState
	sizes     []int64
}

// read reads the map and the states from etcd. The error is etcdmap.ErrNoMap if there is no
// map.
func read(ctx context.Context, s *etcdmap.Store) (r state, err error) {
	if err := s.Refresh(ctx, ^uint64(0)); err != nil {
		return r, err
	}
	if r.placement, _ = s.Map(); r.placement == nil {
		return r, etcdmap.ErrNoMap
	}
	if r.states, err = s.States(ctx); err != nil {
		return r, err
	}
	r.sizes, err = s.Sizes(ctx, r.placement, r.states)
	return r, err
}

// Read returns the state of a collection, without rates.
func Read(ctx context.Context, s *etcdmap.Store) (*Fleet, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	control, err := s.Control(ctx)
	if err != nil {
		return nil, err
	}
	f := Describe(r.placement, r.states, r.sizes, control)
	f.Time = time.Now()
	f.Leader, err = s.Leader(ctx)
	return f, err
}

// ReadWithRates returns the state of a collection. If there are moves, it reads twice, with a
// pause, and returns their rates.
func ReadWithRates(ctx context.Context, s *etcdmap.Store, pause time.Duration) (*Fleet, error) {
	f, err := Read(ctx, s)
	if err != nil || len(f.Moves) == 0 {
		return f, err
	}
	var rates Rates
	rates.Add(f)
	if !ctxtime.Sleep(ctx, pause) {
		return nil, ctx.Err()
	}
	if f, err = Read(ctx, s); err == nil {
		rates.Add(f)
	}
	return f, err
}

// Propose returns the plan for the live columns. If there is none, the error matches
// placement.ErrNoPlan and says why. drain are columns to be drained in addition to those that
// are.
func Propose(ctx context.Context, s *etcdmap.Store, drain ...string) (*Plan, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	control, err := s.Control(ctx)
	if err != nil {
		return nil, err
	}
	return Compare(r.placement, r.states, r.sizes, union(control.Drained, drain))
}

// ChangedError is the error of Apply if the plan is not the one that was asked for.
type ChangedError struct{ Asked, Now string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("fleet: plan %s is not applied: servers or sizes have changed, and the plan is now %s", e.Asked, e.Now)
}

// Apply applies the plan with an ID, or the present one if id is empty: the placer starts its
// moves. Columns to be drained are marked in the same transaction.
func Apply(ctx context.Context, s *etcdmap.Store, id string, drain ...string) (*Plan, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	var p *Plan
	err = s.UpdateControl(ctx, func(c *placement.Control) (err error) {
		drained := union(c.Drained, drain)
		if p, err = Compare(r.placement, r.states, r.sizes, drained); err != nil {
			return err
		}
		if id != "" && p.ID != id {
			return &ChangedError{id, p.ID}
		}
		c.Drained, c.Wanted = drained, p.wanted
		return nil
	})
	return p, err
}

// Undrain marks columns as not drained. The next plan gives them shards.
func Undrain(ctx context.Context, s *etcdmap.Store, columns ...string) error {
	return s.UpdateControl(ctx, func(c *placement.Control) error {
		for _, name := range columns {
			if !slices.Contains(c.Drained, name) {
				return fmt.Errorf("fleet: column %q is not drained", name)
			}
		}
		c.Drained = slices.DeleteFunc(c.Drained, func(name string) bool { return slices.Contains(columns, name) })
		return nil
	})
}

// Pause stops or resumes the start of moves.
func Pause(ctx context.Context, s *etcdmap.Store, paused bool) error {
	if _, err := read(ctx, s); err != nil {
		return err // such as no collection of this name
	}
	return s.UpdateControl(ctx, func(c *placement.Control) error {
		c.Paused = paused
		return nil
	})
}

// union returns the names of both lists in order.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
