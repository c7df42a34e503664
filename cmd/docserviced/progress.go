package main

import (
	"context"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

// progressInterval is how often the collections are asked how far they are.
const progressInterval = 200 * time.Millisecond

// showIndexing shows how far the first indexing is, until every collection has
// read its queue to the end or can read no further.
func showIndexing(ctx context.Context, env *cli.Env, d *daemon) {
	first := sumIndexing(d.collections())
	if first.settled {
		return
	}
	meter := cli.NewMeter(env, "indexing", first.present-first.tailed)
	defer meter.Finish()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.failed:
			return
		case <-ticker.C:
		}
		now := sumIndexing(d.collections())
		meter.SetTotal(now.present - first.tailed)
		meter.Update(now.entries, now.tailed-first.tailed)
		if now.settled {
			return
		}
	}
}

// showSuccessors shows, until ctx ends, how far other queues are that are indexed in the
// place of those served, and indexes that are made anew.
func showSuccessors(ctx context.Context, env *cli.Env, d *daemon) {
	meters := map[string]*successorMeter{}
	defer func() {
		for _, m := range meters {
			m.Finish()
		}
	}()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		for _, c := range d.collections() {
			next, m := c.Status().Successor, meters[c.Name()]
			switch {
			case next == nil && m != nil:
				m.Finish()
				delete(meters, c.Name())
			case next == nil:
			case m == nil:
				meters[c.Name()] = &successorMeter{cli.NewMeter(env, "indexing anew "+c.Name(), next.PresentBytes-next.TailedBytes), next.TailedBytes}
			default:
				m.SetTotal(next.PresentBytes - m.from)
				m.Update(0, next.TailedBytes-m.from)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// successorMeter measures from where the index was when it was first seen.
type successorMeter struct {
	*cli.Meter
	from int64
}

// indexing is how far all collections are together.
type indexing struct {
	entries         int64
	tailed, present int64 // bytes of the queues
	settled         bool  // there is nothing to wait for
}

func sumIndexing(collections []*docservice.Collection) indexing {
	sum := indexing{settled: true}
	for _, c := range collections {
		status := c.Status()
		sum.entries += int64(status.Applied)
		sum.tailed += status.TailedBytes
		sum.present += status.PresentBytes
		stopped := false
		for _, fault := range status.Faults {
			stopped = stopped || fault.StopsTail
		}
		sum.settled = sum.settled && (status.Ready || stopped)
	}
	return sum
}
