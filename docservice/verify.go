package docservice

import (
	"context"
	"time"

	"docstore/queue"
)

// runVerify is the background pass. It reads each sealed segment in full, once
// for each version of its file, so that damage is known before somebody asks
// for a document in it; and again when a fetch has met damage. It is in no
// hurry: one segment at a time, none while the tail has something to read, and
// after each as long a rest as it took. Then damaged files are dealt with.
func (c *Collection) runVerify(ctx context.Context) {
	verified := make(map[queue.SegmentID]fileVersion)
	damaged := quarantine{damaged: make(map[string]sighting)}
	timer := time.NewTimer(c.options.VerifyInterval)
	defer timer.Stop()
	for c.verifyArrived(ctx, verified, &damaged) {
		timer.Reset(c.options.VerifyInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.recheck:
		}
	}
}

// verifyArrived verifies the segments that have arrived or become suspect since
// the last time. It returns false when the collection is being closed.
func (c *Collection) verifyArrived(ctx context.Context, verified map[queue.SegmentID]fileVersion, damaged *quarantine) bool {
	files, err := listSegments(c.options.FS, c.queueDir)
	if err != nil {
		c.logger.Warn("the queue's directory cannot be listed", "dir", c.queueDir, "error", err)
		return ctx.Err() == nil
	}
	for _, f := range files {
		if !f.sealed || !c.takeSuspect(f.id) && verified[f.id] == f.version {
			continue
		}
		if c.waitUntil(ctx, c.tailRests) != nil {
			return false
		}
		started := time.Now()
		if c.verify(ctx, f) {
			verified[f.id] = f.version
		}
		if !sleep(ctx, time.Since(started)) {
			return false
		}
	}
	c.runQuarantine(damaged, files, verified)
	return true
}

// verify reads one segment in full and puts what is wrong with it in the place
// of what was known. It returns false if the segment could not be read.
func (c *Collection) verify(ctx context.Context, f segmentFile) bool {
	report, err := c.queue.Verify(ctx, f.id)
	if err != nil {
		if ctx.Err() == nil {
			c.logger.Warn("a segment cannot be verified", "segment", f.id, "path", f.path, "error", err)
		}
		return false
	}
	found := make([]Fault, 0, len(report.Damage))
	for _, damage := range report.Damage {
		found = append(found, c.faultOf(damage, queue.Address{}))
	}
	c.mu.Lock()
	news, mended := c.mu.faults.replace(f.id, found)
	c.notify()
	c.mu.Unlock()
	for _, fault := range news {
		c.logDamage(fault)
	}
	if mended {
		c.logger.Info("the segment is sound again", "segment", f.id, "path", f.path)
	}
	return true
}

// tailRests tells whether the tail has nothing to do, or cannot do it. c.mu
// must be locked.
func (c *Collection) tailRests() bool { return c.mu.tail.current || c.mu.faults.tail != nil }

// takeSuspect tells whether a fetch has met damage in the segment since this
// was asked last.
func (c *Collection) takeSuspect(id queue.SegmentID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	suspect := c.mu.suspect[id]
	delete(c.mu.suspect, id)
	return suspect
}
