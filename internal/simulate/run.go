package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"docstore/internal/rare"
)

const (
	// settleTime is the time after the last fault in which everything is repaired.
	settleTime = 3 * time.Minute
	settlePoll = time.Second
)

// Report is the result of a run.
type Report struct {
	Config     Config
	Violations []string
	Log        string
	Answers    map[string]int
	Entries    int
	Virtual    time.Duration
}

// String describes the run for a reader.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", r.Config)
	for _, f := range r.Config.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	fmt.Fprintf(&b, "%d entries, answers: %v\n", r.Entries, r.Answers)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION %s\n", v)
	}
	return b.String()
}

// Run runs a configuration. The caller is in a bubble of testing/synctest.
func Run(c Config) (*Report, error) {
	rare.Seed(c.Seed)
	if c.Pools != nil {
		return runPools(c)
	}
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	w.log.add("world", "%v", c)
	for _, h := range w.servers {
		w.running.Go(h.run)
		if c.Clocks > 0 {
			w.running.Go(func() { h.clock.run(w.alive, w, h.name) })
		}
		if h.copier != nil {
			w.running.Go(h.copier.run)
		}
	}
	for _, u := range w.updaters {
		if c.Clocks > 0 && !c.Copies {
			w.running.Go(func() { u.clock.run(w.alive, w, u.name) })
		}
		w.running.Go(u.run)
	}
	if !c.Increments && !c.Copies {
		w.running.Go(w.updaters[0].announce)
	}
	if w.etcd != nil {
		w.running.Go(func() { w.operate(w.alive) })
	}
	if c.Echo {
		w.running.Go(func() { w.serveEcho(w.alive) })
	}
	clients, err := w.openClients()
	if err != nil {
		return nil, err
	}
	w.askers = clients
	adapters, err := w.openAdapterClients()
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(context.Background())
	w.asking.Go(func() { w.write(working) })
	for _, c := range clients {
		w.asking.Go(func() { c.ask(w.busy) })
	}
	for _, c := range adapters {
		w.asking.Go(func() { c.ask(w.busy) })
	}
	if w.access != nil {
		w.asking.Go(func() { w.access.run(w.busy) })
	}
	for _, h := range w.servers {
		p := &prober{w: w, h: h}
		w.probers = append(w.probers, p)
		w.asking.Go(func() { p.run(w.busy) })
	}
	for _, u := range w.updaters {
		w.asking.Go(func() { u.probe(w.busy) })
	}
	w.inject()
	time.Sleep(time.Until(w.start.Add(c.Work)))
	stop()
	w.quiet()
	w.asking.Wait() // for faults to end, too
	for _, h := range w.servers {
		h.crashAt(0, false) // not any more
	}
	w.log.add("world", "all faults have ended")
	if !c.Destructive {
		w.settle(clients)
		for _, c := range adapters {
			c.settle(w.markers(), time.Now().Add(settleTime))
			c.headOfLists()
		}
		w.checkPools(clients)
		w.checkLoad(clients, adapters)
		w.checkIdle()
		w.checkScrubs()
		w.checkCanaries()
		w.checkAlerts()
		w.checkRequests()
	}
	for _, c := range adapters {
		w.must(c.close())
	}
	for _, c := range clients {
		w.must(c.close())
	}
	w.end()
	w.running.Wait()
	if w.etcd != nil {
		w.etcd.stop()
	}
	if !c.Destructive {
		w.checkQueue()
		w.checkErased()
		w.checkBucket()
		w.checkFiles()
	}
	w.clients.Kill()
	w.must(w.access.close())
	a := w.account
	return &Report{Config: c, Violations: a.violations(), Log: w.log.text(), Virtual: time.Since(w.start), Answers: a.mu.answers, Entries: len(a.mu.entries) - 1}, nil
}

// openClients opens a client of each server, and one of all.
func (w *world) openClients() (clients []*client, err error) {
	for _, single := range append([]*serverHost{nil}, w.servers...) {
		c, err := w.newClient(single)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// openAdapterClients opens a client over gRPC and HTTP of each server.
func (w *world) openAdapterClients() (clients []*adapterClient, err error) {
	for _, h := range w.servers {
		c, err := w.newAdapterClient(h, clientToken)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}
