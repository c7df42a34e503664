package docserviced

import (
	"context"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/docservice/collection"
	"docstore/docservice/server"
)

// progressInterval is how often the progress is updated.
const progressInterval = 200 * time.Millisecond

// showIndexing shows the progress of the first indexing, until every collection has read
// its queue to the end or is stopped by a fault.
func showIndexing(ctx context.Context, env *cli.Env, d *server.Server) {
	first := sumIndexing(d.Collections())
	if first.settled {
		return
	}
	bar := meter.New(env, "indexing", first.present-first.tailed)
	defer bar.Finish()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Failed():
			return
		case <-ticker.C:
		}
		now := sumIndexing(d.Collections())
		bar.SetTotal(now.present - first.tailed)
		bar.Update(now.entries, now.tailed-first.tailed)
		if now.settled {
			return
		}
	}
}

// showReplacements shows, until ctx ends, the progress of replacements: other queues, and
// indexes that are rebuilt.
func showReplacements(ctx context.Context, env *cli.Env, d *server.Server) {
	meters := map[string]*replacementMeter{}
	defer func() {
		for _, m := range meters {
			m.Finish()
		}
	}()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		for _, c := range d.Collections() {
			next, m := c.Status().Replacement, meters[c.Name()]
			switch {
			case next == nil && m != nil:
				m.Finish()
				delete(meters, c.Name())
			case next == nil:
			case m == nil:
				meters[c.Name()] = &replacementMeter{meter.New(env, "reindexing "+c.Name(), next.PresentBytes-next.TailedBytes), next.TailedBytes}
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

// replacementMeter measures from the state of the index when it was first seen.
type replacementMeter struct {
	*meter.Meter
	from int64
}

// indexing is the progress of all collections together.
type indexing struct {
	entries         int64
	tailed, present int64 // bytes of the queues
	settled         bool  // the progress is complete or stopped
}

func sumIndexing(collections []*collection.Collection) indexing {
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
