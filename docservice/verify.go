package docservice

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	"docstore/queue"
)

// runVerify is the background pass. It reads each sealed segment completely, once for each
// version of its file, to find damage before a request does, and again when a fetch finds
// damage. Of the open segments it reads those in which a fetch found damage. Results for
// sound files survive a restart. It reads one segment at a time, only while the tail has
// caught up, and pauses after each for the time it took. It also closes files that rewrites
// have replaced, and quarantines damaged files.
func (s *store) runVerify(ctx context.Context) {
	s.loadVerified()
	defer s.saveVerified()
	damaged := quarantine{damaged: make(map[string]sighting), tried: make(map[string]time.Time)}
	timer := time.NewTimer(s.options.VerifyInterval)
	defer timer.Stop()
	for s.verifyArrived(ctx, &damaged) {
		timer.Reset(s.options.VerifyInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.recheck:
		}
	}
}

// verifyArrived verifies the segments that have arrived or become suspect since the last
// call. It returns false when the collection is being closed.
func (s *store) verifyArrived(ctx context.Context, damaged *quarantine) bool {
	files, err := listSegments(s.options.FS, s.queueDir)
	if err == nil {
		err = s.queue.DropReplaced()
	}
	if err != nil {
		s.logger.Warn("listing the queue's directory failed", "dir", s.queueDir, "error", err)
		return ctx.Err() == nil
	}
	s.findUnsettled(files)
	for _, f := range files {
		if !s.isDue(f) || s.ofOtherQueue(f) {
			continue
		}
		if s.waitUntil(ctx, s.tailIdle) != nil {
			return false
		}
		started := time.Now()
		if sound, err := s.verify(ctx, f); err == nil && f.sealed {
			if err := s.verified.note(f, sound); err != nil {
				s.notDurable(f, err)
			}
		} else if err != nil && ctx.Err() == nil {
			s.logger.Warn("verifying a segment failed", "segment", f.id, "path", f.path, "error", err)
		}
		if s.verified.changes >= verifiedSaveInterval {
			s.saveVerified()
		}
		if !sleep(ctx, time.Since(started)) {
			return false
		}
	}
	s.verified.retain(files)
	s.saveVerified()
	s.runQuarantine(damaged, files)
	return true
}

// isDue reports whether a file is to be verified. An open file, which grows, is verified
// only if it is suspect, and then once.
func (s *store) isDue(f segmentFile) bool {
	suspect := s.takeSuspect(f)
	if f.sealed {
		return suspect || !s.verified.knows(f)
	}
	s.mu.Lock()
	wrong := s.mu.faults.has(f)
	s.mu.Unlock()
	if !wrong || !suspect && s.openVerified[f.segmentKey] == f.version.file {
		return false
	}
	s.openVerified[f.segmentKey] = f.version.file
	return true
}

// ofOtherQueue reports whether a file belongs to another queue, whose own pass verifies it.
func (s *store) ofOtherQueue(f segmentFile) bool {
	ours := s.queueID.Load()
	theirs, err := queue.IDOf(s.options.FS, f.path)
	return err == nil && ours != nil && theirs != *ours
}

// verify reads one segment completely and replaces its known faults with the result. The
// error is that of reading it.
func (s *store) verify(ctx context.Context, f segmentFile) (sound bool, err error) {
	report, err := s.queue.VerifyFile(ctx, filepath.Base(f.path))
	if err != nil {
		return false, err
	}
	found := make([]Fault, 0, len(report.Damage))
	for _, damage := range report.Damage {
		found = append(found, s.faultOf(damage, queue.Address{}))
	}
	s.mu.Lock()
	news, repaired := s.mu.faults.replace(f, found)
	s.stateChanged()
	s.mu.Unlock()
	for _, fault := range news {
		s.logDamage(fault)
	}
	if repaired {
		s.logger.Info("a damaged segment was replaced by a sound copy", "segment", f.id, "path", f.path)
	}
	return len(found) == 0, nil
}

// notDurable records as damaged a sound file whose fsync failed.
func (s *store) notDurable(f segmentFile, err error) {
	fault := Fault{
		Segment: f.id, Path: f.path, Since: s.options.Now(), content: true, notDurable: true,
		Reason: "fsync failed, so its bytes may not be on the disk: " + err.Error(),
	}
	s.mu.Lock()
	news := s.mu.faults.add(fault)
	s.stateChanged()
	s.mu.Unlock()
	if news {
		s.logDamage(fault)
	}
}

// tailIdle reports whether the tail has caught up or is stopped. s.mu must be locked.
func (s *store) tailIdle() bool {
	return s.mu.tail.current || s.mu.tail.idle || s.mu.faults.tail != nil
}

// takeSuspect reports whether a fetch has found damage in the file since the last call.
func (s *store) takeSuspect(f segmentFile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	suspects := len(s.mu.suspect)
	maps.DeleteFunc(s.mu.suspect, func(path string, _ bool) bool { return sameFiles(path, f) })
	return len(s.mu.suspect) < suspects
}
