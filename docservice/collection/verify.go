package collection

import (
	"context"
	"path/filepath"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

// verifier is the background pass over the files of the queue. Only its goroutine uses its
// fields.
type verifier struct {
	*shared
	follower *follower
	verified *verifiedFiles
	// openVerified are the open files that were read.
	openVerified map[segmentKey]vfs.FileID
	unsaved      bool // the last results could not be saved, which was logged
}

func newVerifier(s *shared, f *follower) *verifier {
	return &verifier{
		shared: s, follower: f,
		verified:     newVerifiedFiles(s.options.FS, s.number.verifiedPath(s.collection.dir)),
		openVerified: make(map[segmentKey]vfs.FileID),
	}
}

// runVerify is the background pass. It reads each sealed segment completely, once for each
// version of its file, to find damage before a request does, and again when a fetch finds
// damage. Of the open segments it reads those in which a fetch found damage. Results for
// sound files survive a restart. It reads one segment at a time, only while the tail has
// caught up, and pauses after each for the time it took. It also closes files that rewrites
// have replaced, and quarantines damaged files.
func (v *verifier) runVerify(ctx context.Context) {
	v.loadVerified()
	defer v.saveVerified()
	damaged := quarantine{damaged: make(map[string]sighting), tried: make(map[string]time.Time)}
	timer := time.NewTimer(v.options.VerifyInterval)
	defer timer.Stop()
	for v.verifyArrived(ctx, &damaged) {
		timer.Reset(v.options.VerifyInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.health.recheck:
		}
	}
}

// verifyArrived verifies the segments that have arrived or become suspect since the last
// call. It returns false when the collection is being closed.
func (v *verifier) verifyArrived(ctx context.Context, damaged *quarantine) bool {
	files, err := listSegments(v.options.FS, v.queueDir)
	if err == nil {
		err = v.queue.DropReplaced()
	}
	if err != nil {
		v.logger.Warn("listing the queue's directory failed", "dir", v.queueDir, "error", err)
		return ctx.Err() == nil
	}
	v.health.dropSupersededFaults(files)
	for _, f := range files {
		if !v.isDue(f) || v.ofOtherQueue(f) {
			continue
		}
		if v.health.waitUntil(ctx, v.health.tailIdle) != nil {
			return false
		}
		started := time.Now()
		if sound, err := v.verify(ctx, f); err == nil && f.sealed {
			if err := v.verified.note(f, sound); err != nil {
				v.notDurable(f, err)
			}
		} else if err != nil && ctx.Err() == nil {
			if v.health.hasFault(f) {
				v.health.addSuspect(f.path) // only a verification ends its faults
			}
			v.logger.Warn("verifying a segment failed", "segment", f.id, "path", f.path, "error", err)
		}
		if v.verified.changes >= verifiedSaveInterval {
			v.saveVerified()
		}
		if !ctxtime.Sleep(ctx, time.Since(started)) {
			return false
		}
	}
	v.verified.retain(files)
	v.saveVerified()
	v.runQuarantine(damaged, files)
	return true
}

// isDue reports whether a file is to be verified. An open file, which grows, is verified
// only if it is suspect, and then once.
func (v *verifier) isDue(f segmentFile) bool {
	suspect := v.health.takeSuspect(f)
	if f.sealed {
		return suspect || !v.verified.knows(f)
	}
	if !v.health.hasFault(f) || !suspect && v.openVerified[f.segmentKey] == f.version.file {
		return false
	}
	v.openVerified[f.segmentKey] = f.version.file
	return true
}

// ofOtherQueue reports whether a file belongs to another queue, whose own pass verifies it.
func (v *verifier) ofOtherQueue(f segmentFile) bool {
	ours := v.queueID.Load()
	theirs, err := queue.IDOf(v.options.FS, f.path)
	return err == nil && ours != nil && theirs != *ours
}

// verify reads one segment completely and replaces its known faults with the result. The
// error is that of reading it.
func (v *verifier) verify(ctx context.Context, f segmentFile) (sound bool, err error) {
	report, err := maintain.CheckFile(ctx, v.options.FS, filepath.Dir(f.path), filepath.Base(f.path))
	if err != nil {
		return false, err
	}
	found := make([]Fault, 0, len(report.Damage))
	for _, damage := range report.Damage {
		found = append(found, v.faultOf(damage, queue.Address{}))
	}
	news, repaired := v.health.replaceFaults(f, found)
	for _, fault := range news {
		v.logDamage(fault)
	}
	if repaired {
		v.logger.Info("a damaged segment was replaced by a sound copy", "segment", f.id, "path", f.path)
	}
	return len(found) == 0, nil
}

// notDurable records as damaged a sound file whose fsync failed.
func (v *verifier) notDurable(f segmentFile, err error) {
	fault := Fault{
		Segment: f.id, Path: f.path, Since: v.options.Now(), content: true, notDurable: true,
		Reason: "fsync failed, so its bytes may not be on the disk: " + err.Error(),
	}
	if v.health.addFault(fault, false) {
		v.logDamage(fault)
	}
}
