package simulate

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"docstore/boxcarrpc"
)

const (
	// monitorPause is the time between two looks at the pools.
	monitorPause = 500 * time.Millisecond
	// fillTime is the time after a change in which a pool has all slots.
	fillTime = 8 * time.Second
	// steadyTime is the time for which the leases of a settled pool are counted.
	steadyTime = 30 * time.Second
	// spareSlots is the inverse share of the slots that a pool has in other zones.
	spareSlots = 4
	// releaseTime is the time in which servers notice that clients are gone: the idle timeout of
	// connections, after the longest outage.
	releaseTime = 8 * time.Minute
)

// monitor looks at the pool of a front end.
func (f *frontend) monitor() {
	pool := f.current()
	if pool == nil {
		return
	}
	s, now := pool.Stats(), time.Now()
	f.mu.Lock()
	switch {
	case s.Slots > 0:
		f.slotless = time.Time{}
	case f.slotless.IsZero():
		f.slotless = now
	}
	f.mu.Unlock()
	if s.Retries != f.retries {
		f.retries, f.retriedAt = s.Retries, now
	}
	if s.Lost != f.lost {
		f.lost, f.lostAt = s.Lost, now
	}
	if f.changed(now.Add(-fillTime)) || f.w.source.changedSince(now.Add(-fillTime)) {
		return
	}
	if free := s.Slots - s.Busy; s.Waiting > 0 && free > 0 && now.Sub(f.retriedAt) > fillTime && f.w.Pools.Errors == 0 && f.w.Pools.InFlight == 0 {
		f.w.calls.wrongf("waiting", "calls wait while %d slots are free: %s", free, f.state())
	}
	if why := f.lacks(s); why != "" && s.Ejected == 0 && now.Sub(f.lostAt) > fillTime {
		f.w.calls.wrongf("full", "%s: %s", why, f.state())
	}
}

// checkNumbers verifies that no two servers hold the same number in etcd.
func (w *poolWorld) checkNumbers() {
	holders := map[int]*backend{}
	for _, b := range w.backends {
		p := b.current()
		if p == nil || p.number == nil {
			continue
		}
		if n, ok := p.number.Get(); ok {
			if other := holders[n]; other != nil {
				w.calls.wrongf("number", "%s and %s hold the number %d", b.name, other.name, n)
			}
			holders[n] = b
		}
	}
}

// lacks returns why the pool is not full although it must be, or "".
func (f *frontend) lacks(s boxcarrpc.PoolStats) string {
	usable := f.usable()
	switch {
	case s.Slots >= s.Size, usable == 0, f.lacksServers(s), f.halfOpen(), f.drainEndsLate():
		return ""
	case f.w.Pools.Slots > 0 && usable < f.w.Servers: // the others have fewer slots than the pools
		return ""
	}
	return fmt.Sprintf("it lacks %d slots", s.Size-s.Slots)
}

// lacksServers reports whether the pool has a subset, and has borrowed all servers that it may.
func (f *frontend) lacksServers(s boxcarrpc.PoolStats) bool {
	c := f.w.Pools
	return c.Subset > 0 && s.Slots < s.Size && s.Servers >= min(3*c.Subset, s.Known)
}

// halfOpen reports whether servers with few slots may hold those of connections whose clients were
// cut off.
func (f *frontend) halfOpen() bool {
	return f.w.Pools.Slots > 0 && f.w.anySilenced(time.Now().Add(-pastOutage))
}

// drainEndsLate reports whether the end of a drain may be in a connection that was silent, whose
// transmissions have become rare.
func (f *frontend) drainEndsLate() bool {
	return f.silenced(time.Now().Add(-pastOutage)) && slices.ContainsFunc(f.w.Faults, func(fault Fault) bool { return strings.Contains(fault.Kind, "drained") })
}

// settle waits until each pool is full, has its slots in its zone, and holds the lowest ones, while front
// ends send calls. A pool asks a server for a lower slot once a minute, if the last ones had none.
func (w *poolWorld) settle() {
	start := time.Now()
	longest := settleTime + time.Duration(w.Servers)*time.Minute
	for _, f := range w.frontends {
		for why, slow := f.unsettled(); why != ""; why, slow = f.unsettled() {
			if spent := time.Since(start); spent > longest || spent > settleTime && !slow {
				w.calls.wrongf("liveness", "%s: %s", why, f.state())
				return
			}
			time.Sleep(settlePoll)
		}
	}
	w.log.add("world", "settled after %v", time.Since(start))
}

// steady verifies that a settled pool leases no more slots in steadyTime than it has, after a time in which
// it may still replace them. Errors, little memory and waiting calls make pools try other servers.
func (w *poolWorld) steady() {
	if w.Pools.Errors > 0 || w.Pools.Overload || w.Memory > 0 {
		return
	}
	time.Sleep(2 * steadyTime)
	before := map[*frontend]uint64{}
	for _, f := range w.frontends {
		before[f] = f.current().Stats().Leases
	}
	time.Sleep(steadyTime)
	for _, f := range w.frontends {
		if n := f.current().Stats().Leases - before[f]; n > uint64(w.Pools.Size) {
			w.calls.wrongf("steady", "%s has leased %d slots in %v without a fault, and has %d: %s", f.name, n, steadyTime, w.Pools.Size, f.state())
		}
	}
}

// unsettled returns what the pool still lacks, or "". slow: it may take until the pool has asked each
// server.
func (f *frontend) unsettled() (why string, slow bool) {
	s := f.current().Stats()
	if why := f.lacks(s); why != "" {
		return why, false
	}
	if f.w.Rate == 0 || f.w.Pools.Errors > 0 || f.w.Pools.Overload || f.w.Pools.Subset > 0 && s.Servers > f.w.Pools.Subset {
		return "", false // it learns of lower slots once a minute, does not test them while calls wait for its own, or prefers its subset
	}
	highest, held, free, tried := -1, map[*backend]int{}, map[*backend]int{}, map[*backend]bool{}
	near, nearHeld := 0, 0
	for _, b := range f.w.backends {
		if f.w.Zones > 1 && b.zone != f.zone {
			continue
		}
		near++
		board := b.current().server.Board()
		free[b] = board.LowestFree
		for _, slot := range board.Slots {
			if host, _, _ := net.SplitHostPort(slot.Address); host == f.ip {
				held[b]++
				nearHeld++
				tried[b] = tried[b] || slot.Requests > slot.Errors
				highest = max(highest, slot.Number)
			}
		}
	}
	var lower []string
	takesMore := false
	for b, lowest := range free {
		// A server that has not answered a request replaces no slots of others.
		if held[b] >= max(2, 2*s.Size/near) || !tried[b] && (held[b] > 0 || f.w.Pools.Subset > 0) {
			continue
		}
		if takesMore = true; lowest < highest {
			lower = append(lower, fmt.Sprintf("slot %d of %s, where it has %d", lowest, b.name, held[b]))
		}
	}
	if spare := s.Size / spareSlots; takesMore && f.w.Pools.Slots == 0 && f.w.Pools.Subset == 0 && nearHeld < s.Size-spare {
		return fmt.Sprintf("it holds %d slots of its zone; %d may be spare", nearHeld, spare), false
	}
	if len(lower) <= max(2, near/4) {
		return "", false
	}
	return fmt.Sprintf("it holds slot %d, and these are free: %v", highest, lower), true
}

// drained verifies that nothing is left of the calls.
func (w *poolWorld) drained() {
	deadline := time.Now().Add(settleTime)
	for _, f := range w.frontends {
		for s := f.current().Stats(); s.Busy > 0 || s.Waiting > 0 || s.Streams > 0; s = f.current().Stats() {
			if time.Now().After(deadline) {
				w.calls.wrongf("leak", "%s has %d calls, %d waiting ones and %d streams after the last one", f.name, s.Busy, s.Waiting, s.Streams)
				return
			}
			time.Sleep(settlePoll)
		}
	}
}

// released verifies that servers hold nothing for front ends that have ended.
func (w *poolWorld) released() {
	deadline := time.Now().Add(releaseTime)
	for _, b := range w.backends {
		p := b.current()
		for left := p.left(); left != ""; left = p.left() {
			if time.Now().After(deadline) {
				w.calls.wrongf("leak", "%s holds %s after all clients have ended", b.name, left)
				break
			}
			time.Sleep(settlePoll)
		}
	}
}

// left returns what the server holds for clients, or "".
func (p *backendProcess) left() string {
	s, used := p.server.Stats(), p.budget.Stats().Used
	if s.Connections == 0 && s.Slots == 0 && s.InFlight == 0 && used == 0 && s.BufferBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%d connections, %d slots, %d requests and streams, %d bytes, %d bytes of messages", s.Connections, s.Slots, s.InFlight, used, s.BufferBytes)
}
