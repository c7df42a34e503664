package follow

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue"
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
	published bool   // the publisher announces increments
	wanted    bool   // the record lets this server add them
	added     bool   // the served state may hold increments
	diverged  bool   // the added bytes are damaged, or not part of the increments
	problem   string // why the last attempt to add one failed; empty: it succeeded

	extension *publish.Extension // nil: not open
	last      time.Time          // when one was added
	interval  time.Duration      // until the next one is read
}

// mustDrop reports whether the served state holds increments that must not be served.
func (i *increments) mustDrop() bool { return i.diverged || i.added && !i.wanted }

// active reports whether to look for increments.
func (i *increments) active() bool { return i.published && i.wanted && !i.diverged }

// reset forgets the increments of the manifest that was served. added and extension are those
// of the new state.
func (i *increments) reset(added bool, extension *publish.Extension) {
	*i = increments{published: i.published, wanted: i.wanted, added: added, extension: extension}
}

// sealed reports whether all increments were added, and the next manifest follows.
func (i *increments) sealed() bool { return i.extension != nil && i.extension.Sealed() }

// number returns the number of the last increment that was added; 0: none.
func (i *increments) number() uint64 {
	if i.extension == nil {
		return 0
	}
	return i.extension.Number()
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
	latest := time.Now().Add(max(pause, watchLimit)) // increments may follow each other without end
	for {
		i := &f.increments
		if served.Number == 0 || !i.active() {
			i.problem = ""
			return f.waitCommit(ctx, time.Until(end))
		}
		if i.sealed() {
			i.problem = ""
			// The next manifest is about to be announced.
			return f.waitCommit(ctx, min(incrementInterval, f.options.PollInterval))
		}
		added, err := f.extend(ctx, served, end)
		f.settle()
		if err == nil && added.Last == nil {
			err = f.reader.problem()
		}
		if err != nil && ctx.Err() == nil {
			i.diverged = errors.Is(err, publish.ErrDiverged)
			if err.Error() != i.problem {
				i.problem = err.Error()
				f.logger.Warn("adding an increment failed; retrying", "manifest", served.Number, "error", err)
			}
			f.update(func(s *Status) { s.Error = i.problem })
			return ctxtime.Sleep(ctx, time.Until(end))
		}
		i.problem = ""
		if !time.Now().Before(latest) {
			return ctx.Err() == nil
		}
		if added.Behind {
			if !time.Now().Before(end) {
				return ctx.Err() == nil
			}
			continue
		}
		wait := i.next(time.Now(), f.options.PollInterval)
		if f.watches() && (!woken || added.Last != nil) {
			if f.reader.wait(ctx, i.number(), wait, watchLimit) {
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
	f.mu.Lock()
	failed := f.mu.status.Error != ""
	f.mu.Unlock()
	return !failed && f.reader.watches()
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

// extend adds increments. It waits until a time for the index, before it adds the first one.
func (f *Follower) extend(ctx context.Context, served publish.Ref, until time.Time) (added publish.Added, err error) {
	i := &f.increments
	if i.extension == nil {
		m, err := f.manifest(ctx, served)
		if err != nil {
			return publish.Added{}, err
		}
		if i.extension, err = f.openExtension(ctx, f.state, m, served); err != nil {
			return publish.Added{}, err
		}
		f.update(func(s *Status) { s.Increment = i.number() })
	}
	newest, at, behind := f.reader.known(served)
	known := newest
	f.mu.Lock()
	if g := f.mu.start.goal; g.Manifest == served.Number {
		known = max(known, g.Increment)
	}
	f.mu.Unlock()
	defer func() {
		f.update(func(s *Status) {
			switch {
			case behind, added.Behind, known > i.number():
				s.becomeBehind(f.now())
			case err == nil && !at.IsZero() && (added.End || newest > 0):
				s.becomeCurrent(at)
			}
		})
	}()
	if !i.added {
		exists := known > i.number()
		if !exists {
			if exists, err = i.extension.Waiting(ctx); err != nil || !exists {
				return publish.Added{End: !exists}, err
			}
		}
		known, i.last = max(known, i.number()+1), time.Now()
		if ready, err := f.prepareExtension(ctx, served, until); err != nil || !ready {
			return publish.Added{}, err
		}
	}
	added, err = i.extension.Next(ctx, known)
	if last := added.Last; last != nil {
		i.last = time.Now()
		f.update(func(s *Status) { s.Increment, s.IncrementTime = last.Number, last.Time })
	}
	return added, err
}

// openExtension opens the extension of a state at a manifest.
func (f *Follower) openExtension(ctx context.Context, state int, m *publish.Manifest, at publish.Ref) (*publish.Extension, error) {
	return publish.OpenExtension(ctx, f.reader.increments(m), at, m, f.options.Shard.number(), f.queuePath(state), &publish.Options{FS: f.fs, Now: f.now})
}

// prepareExtension makes a checkpoint of the index at the end of the served manifest, before
// the first increment is added. It waits for the index, and returns false if that has not got
// there.
func (f *Follower) prepareExtension(ctx context.Context, served publish.Ref, until time.Time) (bool, error) {
	head, err := queue.ReadHead(f.fs, f.queuePath(f.state))
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := f.collection.WaitPosition(limited, head.End); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		return false, err
	}
	if err := f.checkpoint(ctx, served); err != nil {
		return false, err
	}
	if err := f.change(func(c *current) { c.Extended = true }); err != nil {
		return false, err
	}
	f.increments.added = true
	return true, nil
}
