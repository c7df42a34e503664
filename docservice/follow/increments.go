package follow

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

const (
	// incrementInterval is the interval at which the next increment is read while a stream
	// is active: for activeTime after the last one. Later the interval doubles each time, up
	// to PollInterval.
	incrementInterval = 100 * time.Millisecond
	activeTime        = 3 * time.Second

	// watchLimit is the interval at which the bucket is read although an arbiter wakes this
	// server, which may miss a change.
	watchLimit = 5 * time.Second
)

// increments is what a Follower knows about the increments of the served manifest.
type increments struct {
	published bool // the publisher announces increments
	wanted    bool // the record lets this server add them
	added     bool // the served state may hold increments
	diverged  bool // the added bytes are damaged, or not part of the increments

	extension *publish.Extension // nil: not open
	last      time.Time          // when one was added
	interval  time.Duration      // until the next one is read
}

// mustDrop reports whether the served state holds increments that must not be served.
func (i *increments) mustDrop() bool { return i.diverged || i.added && !i.wanted }

// active reports whether to look for increments.
func (i *increments) active() bool { return i.published && i.wanted && !i.diverged }

// reset forgets the increments of the manifest that was served.
func (i *increments) reset() {
	*i = increments{published: i.published, wanted: i.wanted}
}

// next returns the interval until the next increment is to be read.
func (i *increments) next(now time.Time, longest time.Duration) time.Duration {
	if now.Sub(i.last) < activeTime {
		i.interval = incrementInterval
	} else {
		i.interval *= 2
	}
	i.interval = min(max(i.interval, incrementInterval), longest)
	return i.interval
}

// pause adds increments to the served manifest until the record is to be read again. It
// returns false if the context has ended.
func (f *Follower) pause(ctx context.Context, served publish.Ref, pause time.Duration) bool {
	end, woken := time.Now().Add(pause), false
	for {
		i := &f.increments
		if served.Number == 0 || !i.active() {
			return f.waitCommit(ctx, time.Until(end))
		}
		if i.extension != nil && i.extension.Sealed() {
			// The next manifest is about to be announced.
			return f.waitCommit(ctx, min(incrementInterval, f.options.PollInterval))
		}
		before := f.Status().Increment
		err := f.extend(ctx, served)
		if err != nil && ctx.Err() == nil {
			i.diverged = errors.Is(err, publish.ErrDiverged)
			f.logger.Warn("adding an increment failed", "manifest", served.Number, "error", err)
			return ctxtime.Sleep(ctx, time.Until(end))
		}
		wait, added := i.next(time.Now(), f.options.PollInterval), f.Status().Increment
		if f.watches() && (!woken || added > before) {
			if f.reader.wait(ctx, added, wait, watchLimit) {
				return ctx.Err() == nil
			}
			woken = true
			continue
		}
		woken = false // the increment cannot be added yet
		if rest := time.Until(end); wait >= rest {
			return ctxtime.Sleep(ctx, rest)
		}
		if !ctxtime.Sleep(ctx, wait/2+rand.N(wait)) {
			return false
		}
	}
}

// watches reports whether the arbiter of the record wakes this server. After a failure it
// polls.
func (f *Follower) watches() bool {
	return f.Status().Error == "" && f.reader.watches()
}

// waitCommit waits for a commit, or for pause if no arbiter wakes this server. It returns
// false if the context has ended.
func (f *Follower) waitCommit(ctx context.Context, pause time.Duration) bool {
	if !f.watches() {
		return ctxtime.Sleep(ctx, pause)
	}
	f.reader.wait(ctx, math.MaxUint64, pause, watchLimit)
	return ctx.Err() == nil
}

// extend adds the increments that are new.
func (f *Follower) extend(ctx context.Context, served publish.Ref) error {
	i := &f.increments
	if i.extension == nil {
		m, err := f.manifest(ctx, served)
		if err != nil {
			return err
		}
		i.extension, err = publish.OpenExtension(ctx, f.reader.increments(m), served, m, f.options.Shard.number(), f.queuePath(f.state), &publish.Options{FS: f.fs, Now: f.now})
		if err != nil {
			return err
		}
	}
	if !i.added {
		if ready, err := f.prepareExtension(ctx, served); err != nil || !ready {
			return err
		}
	}
	increment, err := i.extension.Next(ctx)
	if increment != nil {
		i.last = time.Now()
		f.update(func(s *Status) { s.Increment, s.IncrementTime = increment.Number, increment.Time })
	}
	return err
}

// prepareExtension makes a checkpoint of the index at the end of the served manifest, before
// the first increment is added. It returns false if there is no increment, or if the index
// is behind.
func (f *Follower) prepareExtension(ctx context.Context, served publish.Ref) (bool, error) {
	if waiting, err := f.increments.extension.Waiting(ctx); err != nil || !waiting {
		return false, err
	}
	f.increments.last = time.Now()
	if !f.collection.Status().Ready {
		return false, nil
	}
	if err := f.checkpoint(ctx, served); err != nil {
		return false, err
	}
	if err := f.save(current{State: f.state, Ref: served, Extended: true}); err != nil {
		return false, err
	}
	f.increments.added = true
	return true, nil
}
