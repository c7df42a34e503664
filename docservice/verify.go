package docservice

import (
	"context"
	"path/filepath"
	"time"

	"docstore/queue"
)

// runVerify is the background pass. It reads each sealed segment in full, once
// for each version of its file, so that damage is known before somebody asks
// for a document in it; and again when a fetch has met damage. What was found
// sound is kept over a restart. It is in no
// hurry: one segment at a time, none while the tail has something to read, and
// after each as long a rest as it took. Then damaged files are dealt with.
func (c *Collection) runVerify(ctx context.Context) {
	c.loadVerified()
	defer c.saveVerified()
	damaged := quarantine{damaged: make(map[string]sighting)}
	timer := time.NewTimer(c.options.VerifyInterval)
	defer timer.Stop()
	for c.verifyArrived(ctx, &damaged) {
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
func (c *Collection) verifyArrived(ctx context.Context, damaged *quarantine) bool {
	files, err := listSegments(c.options.FS, c.queueDir)
	if err != nil {
		c.logger.Warn("the queue's directory cannot be listed", "dir", c.queueDir, "error", err)
		return ctx.Err() == nil
	}
	for _, f := range files {
		if !f.sealed || !c.takeSuspect(f) && c.verified.knows(f) {
			continue
		}
		if c.waitUntil(ctx, c.tailRests) != nil {
			return false
		}
		started := time.Now()
		if sound, err := c.verify(ctx, f); err == nil {
			c.verified.note(f, sound)
		} else if ctx.Err() == nil {
			c.logger.Warn("a segment cannot be verified", "segment", f.id, "path", f.path, "error", err)
		}
		if c.verified.changes >= verifiedSaveInterval {
			c.saveVerified()
		}
		if !sleep(ctx, time.Since(started)) {
			return false
		}
	}
	c.verified.retain(files)
	c.saveVerified()
	c.runQuarantine(damaged, files)
	return true
}

// verify reads one segment in full and puts what is wrong with it in the place
// of what was known. The error is that it could not be read.
func (c *Collection) verify(ctx context.Context, f segmentFile) (sound bool, err error) {
	report, err := c.queue.VerifyFile(ctx, filepath.Base(f.path))
	if err != nil {
		return false, err
	}
	found := make([]Fault, 0, len(report.Damage))
	for _, damage := range report.Damage {
		found = append(found, c.faultOf(damage, queue.Address{}))
	}
	c.mu.Lock()
	news, mended := c.mu.faults.replace(f, found)
	c.notify()
	c.mu.Unlock()
	for _, fault := range news {
		c.logDamage(fault)
	}
	if mended {
		c.logger.Info("the segment is sound again", "segment", f.id, "path", f.path)
	}
	return len(found) == 0, nil
}

// tailRests tells whether the tail has nothing to do, or cannot do it. c.mu
// must be locked.
func (c *Collection) tailRests() bool { return c.mu.tail.current || c.mu.faults.tail != nil }

// takeSuspect tells whether a fetch has met damage in the file since this was
// asked last.
func (c *Collection) takeSuspect(f segmentFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	suspect := c.mu.suspect[f.path]
	delete(c.mu.suspect, f.path)
	return suspect
}
