package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// zombieTime is how long a lost ingest host that has returned runs, before it is turned off.
const zombieTime = 10 * time.Second

// stuckTime is how long publishing fails until the operator starts append again.
const stuckTime = 15 * time.Second

// ingest returns the ingest host that is to publish.
func (w *world) ingest() *updater {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.ingest
}

// takeOver lets the other ingest host continue, from a restored queue. The present one is cut off
// or, if kill, does not run, until the result is called. Then it returns as a zombie.
func (w *world) takeOver(kill bool) (end func()) {
	lost := w.ingest()
	next := w.updaters[0]
	if next == lost {
		next = w.updaters[1]
	}
	if !lost.hasPublished() || !next.isOff() {
		return nil // there is nothing to restore, or the last one that was lost is not off
	}
	var back func()
	if kill {
		back = lost.hold(true)
	} else {
		back = lost.isolate()
	}
	w.mu.Lock()
	w.mu.ingest = next
	w.mu.Unlock()
	next.turnOn()
	w.watching.Do(func() { w.running.Go(w.watch) })
	w.log.add("operator", "%s takes over", next.name)
	return func() {
		back()
		time.Sleep(zombieTime)
		lost.turnOff()
	}
}

// turnOn starts append with a restored queue.
func (u *updater) turnOn() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.restore, u.mu.off = true, false
}

// turnOff ends append until turnOn is called.
func (u *updater) turnOff() {
	u.mu.Lock()
	u.mu.off = true
	u.mu.Unlock()
	u.stop(true)
}

func (u *updater) isOff() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.off
}

// hasPublished reports whether append knows a manifest in the store.
func (u *updater) hasPublished() bool {
	u.mu.Lock()
	p := u.mu.process
	u.mu.Unlock()
	if p == nil {
		return false
	}
	live := p.live.Load()
	return live != nil && live.State().Published > 0
}

// isolate cuts the host off, until the result is called.
func (u *updater) isolate() (heal func()) {
	ended := countFault(&u.mu.Mutex, &u.mu.isolated)
	rejoin := u.w.network.Host(u.ip, "a").Isolate()
	return func() {
		rejoin()
		ended()
	}
}

func (u *updater) isIsolated() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.isolated > 0
}

// heed does what an error of append says.
func (u *updater) heed(err error) {
	if err != nil && u == u.w.ingest() && strings.Contains(err.Error(), "restore into a new directory") {
		u.mu.Lock()
		u.mu.restore = true
		u.mu.Unlock()
	}
}

// restored is docstore-updater restore, if that is due.
func (u *updater) restored(p *updaterProcess, b bucket.Bucket) error {
	u.mu.Lock()
	due := u.mu.restore
	u.mu.Unlock()
	if !due {
		return nil
	}
	options := &publish.Options{FS: p.files, Now: u.clock.now}
	if err := p.files.RemoveAll(queueDir); err != nil {
		return err
	}
	m, ref, err := publish.FindManifest(p.ctx, b, 0, u.clock.now)
	if err == nil {
		err = publish.Restore(p.ctx, b, m, queueDir, options)
	}
	if err == nil {
		_, err = publish.RestoreIncrements(p.ctx, b, ref, m, queueDir, options)
	}
	u.w.log.add(u.name, "restore: %v", err)
	if err == nil {
		u.mu.Lock()
		u.mu.restore = false
		u.mu.Unlock()
	}
	return err
}

// watch is the operator of ingest hosts that have taken over: if publishing fails for long, append
// is started again, and its last error is heeded.
func (w *world) watch() {
	failing := time.Duration(0)
	for ctxtime.Sleep(w.alive, time.Second) {
		u := w.ingest()
		u.mu.Lock()
		p := u.mu.process
		u.mu.Unlock()
		failing += time.Second
		if p == nil || p.live.Load() == nil || !p.live.Load().State().Failing {
			failing = 0
		}
		if failing >= stuckTime {
			u.stop(false)
			failing = 0
		}
	}
}

// checkBucket verifies the bucket at the end: everything can be restored, and of two publishers only
// the one that has taken over commits.
func (w *world) checkBucket() {
	ctx, b := context.Background(), w.store.Objects()
	checked, err := publish.Check(ctx, b)
	w.must(err)
	for _, problem := range checked.Problems {
		w.account.wrongf("bucket", "%v", problem)
	}
	var before publish.Record
	for n := uint64(1); n <= checked.Commits; n++ {
		content, err := bucket.ReadAll(ctx, b, fmt.Sprintf("commit/%012d", n), 1<<20)
		w.must(err)
		var commit struct{ Record publish.Record }
		w.must(json.Unmarshal(content, &commit))
		now := commit.Record
		if now.Epoch < before.Epoch || now.Owner != before.Owner && now.Epoch == before.Epoch {
			w.account.wrongf("publishers", "commit %d is of another publisher than the one before, in epoch %d after %d", n, now.Epoch, before.Epoch)
		}
		if now.Head != before.Head {
			m, err := publish.ReadManifest(ctx, b, now.Head)
			switch {
			case errors.Is(err, bucket.ErrNotExist): // collected
			case err != nil:
				w.must(err)
			case m.Previous != before.Head || now.Owner != before.Owner:
				w.account.wrongf("publishers", "commit %d of epoch %d has a manifest that follows %d, after epoch %d and manifest %d", n, now.Epoch, m.Previous.Number, before.Epoch, before.Head.Number)
			}
		}
		before = now
	}
}
