package docservice

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	"docstore/queue"
)

// runVerify is the background pass. It reads each sealed segment in full, once
// for each version of its file, so that damage is known before somebody asks
// for a document in it; and again when a fetch has met damage. Of open segments it
// reads those that a fetch has met damage in. What was found
// sound is kept over a restart. It is in no hurry: one segment at a time, none
// while the tail has something to read, and after each as long a rest as it took.
// Files that rewrites have replaced are let go of, and damaged ones are dealt with.
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

// verifyArrived verifies the segments that have arrived or become suspect since
// the last time. It returns false when the collection is being closed.
func (s *store) verifyArrived(ctx context.Context, damaged *quarantine) bool {
	files, err := listSegments(s.options.FS, s.queueDir)
	if err == nil {
		err = s.queue.DropReplaced()
	}
	if err != nil {
		s.logger.Warn("the queue's directory cannot be listed", "dir", s.queueDir, "error", err)
		return ctx.Err() == nil
	}
	s.noteUnsettled(files)
	for _, f := range files {
		if !s.isDue(f) || s.foreign(f) {
			continue
		}
		if s.waitUntil(ctx, s.tailRests) != nil {
			return false
		}
		started := time.Now()
		if sound, err := s.verify(ctx, f); err == nil && f.sealed {
			if err := s.verified.note(f, sound); err != nil {
				s.notDurable(f, err)
			}
		} else if err != nil && ctx.Err() == nil {
			s.logger.Warn("a segment cannot be verified", "segment", f.id, "path", f.path, "error", err)
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

// isDue tells whether a file is to be verified. An open one, which grows, is only if
// something is wrong with it, and then once for each file in its place.
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

// foreign tells whether a file is another queue's. That one's own pass verifies it.
func (s *store) foreign(f segmentFile) bool {
	ours := s.queueID.Load()
	theirs, err := queue.IDOf(s.options.FS, f.path)
	return err == nil && ours != nil && theirs != *ours
}

// verify reads one segment in full and puts what is wrong with it in the place
// of what was known. The error is that it could not be read.
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
	news, mended := s.mu.faults.replace(f, found)
	s.stateChanged()
	s.mu.Unlock()
	for _, fault := range news {
		s.logDamage(fault)
	}
	if mended {
		s.logger.Info("the segment is sound again", "segment", f.id, "path", f.path)
	}
	return len(found) == 0, nil
}

// notDurable notes as damaged a file that reads well and that the disk did not take.
func (s *store) notDurable(f segmentFile, err error) {
	fault := Fault{
		Segment: f.id, Path: f.path, Since: s.options.Now(), content: true, notDurable: true,
		Reason: "its bytes are not on the disk, which could not take them: " + err.Error(),
	}
	s.mu.Lock()
	news := s.mu.faults.add(fault)
	s.stateChanged()
	s.mu.Unlock()
	if news {
		s.logDamage(fault)
	}
}

// tailRests reports whether the tail has nothing to do, or cannot do it. s.mu must be
// locked.
func (s *store) tailRests() bool {
	return s.mu.tail.current || s.mu.tail.idle || s.mu.faults.tail != nil
}

// takeSuspect tells whether a fetch has met damage in the file since this was
// asked last.
func (s *store) takeSuspect(f segmentFile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	suspects := len(s.mu.suspect)
	maps.DeleteFunc(s.mu.suspect, func(path string, _ bool) bool { return sameFiles(path, f) })
	return len(s.mu.suspect) < suspects
}
