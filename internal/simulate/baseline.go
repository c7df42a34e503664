package simulate

import (
	"fmt"
	"slices"
	"time"

	"docstore/internal/simulate/store"
)

// baselineTime is the time after which pools are full and optimal, and servers with idle clients hold
// nothing for requests. An idle client of one server asks for a lower slot once a minute.
const baselineTime = 2 * time.Minute

// await waits until lacks returns "".
func (w *world) await(rule, name string, lacks func() string) {
	deadline := time.Now().Add(baselineTime)
	for problem := lacks(); problem != ""; problem = lacks() {
		if time.Now().After(deadline) {
			w.account.wrongf(rule, "%s: %s", name, problem)
			return
		}
		time.Sleep(settlePoll)
	}
}

// checkPools waits until each pool of the clients is full and optimal.
func (w *world) checkPools(clients []*client) {
	for _, c := range clients {
		w.await("pool", c.name, c.poolLacks)
	}
}

// poolLacks describes what the pools of the client lack; "": nothing.
func (c *client) poolLacks() string {
	for _, stats := range c.pools() {
		if stats.Slots != stats.Size || stats.Live != stats.Servers || stats.Known != stats.Servers || stats.Ejected != 0 || stats.Busy != 0 {
			return fmt.Sprintf("%+v", stats)
		}
		if c.single == nil {
			continue
		}
		if s := c.single.started(); s != nil && s.Boxcar().Stats().LowestFree < stats.Highest {
			return fmt.Sprintf("it holds slot %d, and slot %d is free", stats.Highest, s.Boxcar().Stats().LowestFree)
		}
	}
	return ""
}

// checkIdle waits until the servers, whose clients are idle, hold nothing for requests. Connections
// stay open, because closing them would release a leak. There are no canaries meanwhile: servers fetch
// them from each other.
func (w *world) checkIdle() {
	if w.config.Canaries > 0 {
		defer w.ingest().hold(false)()
		time.Sleep(freshTime)
	}
	for _, h := range w.servers {
		w.await("idle server", h.name, h.holdsMore)
	}
}

// checkScrubs waits until the servers have verified their indexes.
func (w *world) checkScrubs() {
	for _, h := range w.servers {
		w.await("scrub", h.name, h.unverified)
	}
}

// unverified describes an index that was not verified since it was opened; "": there is none.
func (h *serverHost) unverified() string {
	s := h.started()
	if s == nil {
		return "it does not run"
	}
	for _, c := range s.Collections() {
		if c.Status().Scrub.Passes == 0 {
			return "the index of " + c.Name() + " was not verified"
		}
	}
	return ""
}

// freshTime is the time in which servers serve entries that are announced.
const freshTime = 15 * time.Second

// checkCanaries waits until each shard serves a new canary, although there are no other entries.
func (w *world) checkCanaries() {
	if w.config.Canaries == 0 {
		return
	}
	for _, h := range w.servers {
		w.await("canary", h.name, h.oldCanary)
	}
}

// oldCanary describes a canary that is older than one that must be served; "": there is none.
func (h *serverHost) oldCanary() string {
	s := h.started()
	if s == nil {
		return "it does not run"
	}
	most := h.w.config.Canaries + h.w.config.segmentAge() + freshTime
	for _, c := range s.Collections() {
		if age := time.Since(c.Status().CanarySent); age > most {
			return fmt.Sprintf("the canary of %s was sent %v ago, the limit is %v", c.Name(), age, most)
		}
	}
	return ""
}

// holdsMore describes what the server still holds for requests; "": nothing.
func (h *serverHost) holdsMore() string {
	s := h.started()
	if s == nil {
		return "it does not run"
	}
	boxcar, messages, memory := s.Boxcar().Stats(), s.Messages().Stats(), s.State().Status().Memory
	if boxcar.InFlight != 0 || boxcar.BufferBytes != 0 || messages.Used != 0 || messages.Messages != 0 || memory.PinnedBytes != 0 || memory.MergeBytes != 0 {
		return fmt.Sprintf("%d requests in flight, %d bytes of buffers, %d bytes of requests and responses, %d of messages, %d bytes pinned, %d bytes of merges",
			boxcar.InFlight, boxcar.BufferBytes, messages.Used, messages.Messages, memory.PinnedBytes, memory.MergeBytes)
	}
	return ""
}

// mostFailures is the most failed requests to the store that a server may send in store.FailuresWindow:
// for each shard it waits after a failure.
const mostFailures = 500

// checkRequests checks that no server has repeated requests to a failing store without pauses.
func (w *world) checkRequests() {
	for _, name := range w.names() {
		if n := w.store.Failures(name); n > mostFailures {
			w.account.wrongf("requests", "%s has sent %d requests that failed within %v", name, n, store.FailuresWindow)
		}
	}
}

// hasFault reports whether a fault of one of some kinds is active, or was a moment ago.
func (h *serverHost) hasFault(kinds ...string) bool {
	now := time.Since(h.w.start)
	return slices.ContainsFunc(h.w.config.Faults, func(f Fault) bool {
		return slices.Contains(kinds, f.Kind) && f.Target == h.name && f.At <= now && now < f.At+f.For+time.Second
	})
}

// checkStopped checks that a process that ended by a signal has closed its files and connections. A
// process does not wait for a sample of its metrics that reads a slow disk.
func (h *serverHost) checkStopped(p *serverProcess) {
	h.mu.Lock()
	killed := p.killed
	h.mu.Unlock()
	if killed || h.hasFault("server disk stalls", "server disk slow") {
		return
	}
	if files, conns := p.files.OpenFiles(), p.net.OpenConns(); len(files) > 0 || len(conns) > 0 {
		h.w.account.wrongf("stopped server", "%s has left the connections to %v and the files %v open", h.name, conns, files)
	}
}
