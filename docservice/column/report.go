package column

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"docstore/docservice/follow"
	"docstore/docservice/placement"
	"docstore/docservice/readiness"
)

// Status is the state of a Column.
type Status struct {
	Column string
	// Row is the number that is held or was held last, -1 before.
	Row        int
	Generation string // of the map that is followed
	Epoch      uint64 // of the map that is followed; 0: none
	// Readiness is that of the shards that the map assigned to the column at the start.
	Readiness readiness.Report
	Shards    []ShardStatus // in ascending order
	Used      int64         // bytes of the data directory
	Limit     int64
}

// State is the state of a shard on this server.
type State string

// The states of a shard.
const (
	Fetching State = "fetching" // assigned, and not served yet
	Serving  State = "serving"  // assigned and served
	Moved    State = "moved"    // served, and assigned to another column
	Failed   State = "failed"   // it cannot be opened
)

// ShardStatus is the state of a shard.
type ShardStatus struct {
	Shard    int
	State    State
	Copy     readiness.Report
	Bytes    int64 // of the announced manifest
	Fetched  int64
	Manifest uint64 // served
	Target   uint64
	Behind   bool // for behindTime: the target, or an increment of it, is not served
}

// behindTime is the time after which a shard is reported as behind, so that the report does not
// change with each increment.
const behindTime = 10 * time.Second

// Status returns the current state.
func (c *Column) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.status
}

func (c *Column) setStatus(s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Column, s.Row = c.mu.column, -1
	if c.mu.number != nil {
		if row, ok := c.mu.number.Get(); ok {
			s.Row = row
		} else {
			s.Row = c.mu.status.Row
		}
	}
	c.mu.status = s
}

// report serves the shards that are ready, and reports the state of all.
func (c *Column) report(m *placement.Map) {
	s := Status{Generation: m.Generation, Epoch: m.Epoch, Used: c.disk.used, Limit: c.disk.limit}
	var missing []readiness.Part
	for _, i := range slices.Sorted(maps.Keys(c.shards)) {
		h := c.shards[i]
		if c.removing[i] {
			continue
		}
		one := c.statusOf(h)
		s.Shards = append(s.Shards, one)
		if one.State == Serving {
			delete(c.start, i)
		}
		// A served shard is not ready any more because of a limit of staleness.
		if !one.Copy.IsReady() && (one.State == Serving || c.start[i] && h.moved.IsZero()) {
			missing = append(missing, readiness.Part{Name: fmt.Sprintf("shard %d", i), Report: one.Copy})
		}
	}
	s.Readiness = readiness.Combine(len(s.Shards), missing)
	c.ready = c.ready || len(missing) == 0
	c.setStatus(s)
	c.publish(s)
}

// statusOf serves a shard if it is ready, and describes it.
func (c *Column) statusOf(h *held) ShardStatus {
	served, s := c.admit(h)
	one := ShardStatus{
		Shard: h.number, State: Fetching, Copy: s.Files, Bytes: c.bytesOf(h.number), Manifest: s.Served, Target: s.Target,
		Behind: !s.Behind.IsZero() && time.Since(s.Behind) >= behindTime,
	}
	one.Fetched = fetched(s, one.Bytes)
	switch {
	case h.follower == nil:
		one.State, one.Copy = Failed, readiness.Report{State: readiness.Faulted, Cause: "it cannot be opened"}
		if h.problem != nil {
			one.Copy.Cause += ": " + h.problem.Error()
		}
	case served && !h.moved.IsZero():
		one.State = Moved
	case served:
		one.State = Serving
	default:
		one.Copy = h.copyState(s.Files)
	}
	return one
}

// fetched returns the bytes of a shard that are here.
func fetched(s follow.Status, bytes int64) int64 {
	switch {
	case s.FetchBytes > 0:
		return min(max(bytes-(s.FetchBytes-s.FetchedBytes), 0), bytes)
	case s.Served > 0:
		return bytes
	}
	return 0
}

// publish reports the state to the placer, and shows the server to clients when it is ready.
func (c *Column) publish(s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := placement.ServerState{
		Address: c.options.Server.Address, Page: c.options.Page, Zone: c.options.Zone, Column: c.mu.column, Row: c.mu.state.Row,
		Generation: s.Generation, Epoch: s.Epoch, Limit: s.Limit, Used: s.Used,
	}
	for _, one := range s.Shards {
		if one.State == Failed {
			continue
		}
		shard := placement.ShardState{
			Shard: one.Shard, Ready: one.State == Serving || one.State == Moved,
			Bytes: one.Bytes, Fetched: one.Fetched, Manifest: one.Manifest, Target: one.Target, Behind: one.Behind,
		}
		if !shard.Ready {
			shard.State = string(one.Copy.State)
		}
		state.Shards = append(state.Shards, shard)
	}
	if c.mu.number != nil && s.Readiness.IsReady() {
		c.mu.number.Show()
	}
	if reflect.DeepEqual(state, c.mu.state) {
		return
	}
	c.mu.state = state
	if c.mu.reporter != nil {
		c.mu.reporter.Set(state)
	}
}
