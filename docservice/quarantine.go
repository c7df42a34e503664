package docservice

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/queue"
)

// Quarantine. rsync compares size and time of a file and takes a damaged copy
// for a good one for ever. Renamed to N.seg.bad it is missing, so that the next
// pass of rsync brings another copy; until then its sound documents are read
// where they are.
//
// A file is set aside if
//
//   - its bytes are wrong, or it ends before the position that was read to (not
//     if the queue forked, or reading failed);
//   - it has not changed for QuarantineAfter, so that nobody is writing to it;
//   - the directory is a copy: where the queue is written there is a LOCK;
//   - N.seg.bad is not there yet, or is from before this start. A copy that is
//     damaged again says that the source may be, and to fetch it over and over
//     would mend nothing. So there is one attempt until a copy is sound; then
//     N.seg.bad is removed. A loss of power can damage the second copy as it did
//     the first: so a start makes another attempt. Where it is the disk that did not
//     take the copy, there is another attempt from time to time.

// lockName is the name of the lock in a directory where a queue is written.
const lockName = "LOCK"

// quarantine is what the background pass remembers about damaged files.
type quarantine struct {
	damaged map[string]sighting  // by path
	tried   map[string]time.Time // when files were set aside since the start, by path
}

// diskRests is how many QuarantineAfters lie between two copies of a file that the disk
// did not take.
const diskRests = 12

// sighting is a damaged file as it was first seen.
type sighting struct {
	version fileVersion
	since   time.Time
	told    bool // why it is not set aside
}

// runQuarantine is one round: awaited copies that have come are noted, damaged
// files set aside, and what was set aside before removed if a sound copy came.
func (s *store) runQuarantine(q *quarantine, files []segmentFile) {
	s.noteArrived(files)
	if !s.options.Quarantine || s.queueDir != s.collection.queueDir { // nobody brings a queue that was replaced
		return
	}
	suspects := s.damagedFiles()
	for path := range q.damaged {
		if _, still := suspects[path]; !still {
			delete(q.damaged, path)
		}
	}
	for path, fault := range suspects {
		s.considerDamaged(q, path, fault)
	}
	s.removeAside(files)
}

// damagedFiles are the files with wrong bytes, each with one of its faults.
func (s *store) damagedFiles() map[string]Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]Fault)
	if tail := s.mu.faults.tail; tail != nil && tail.content {
		found[tail.Path] = *tail
	}
	for _, faults := range s.mu.faults.segments {
		for _, f := range faults {
			if _, known := found[f.Path]; f.content && !known {
				found[f.Path] = f
			}
		}
	}
	return found
}

// considerDamaged sets a damaged file aside once it may be.
func (s *store) considerDamaged(q *quarantine, path string, fault Fault) {
	info, err := s.options.FS.Stat(path)
	if err != nil {
		return // it is being replaced
	}
	version := fileVersion{file: info.ID, bytes: info.Size, modified: info.ModTime}
	seen, known := q.damaged[path]
	if !known || seen.version != version {
		seen = sighting{version: version, since: time.Now()}
	}
	tried := q.tried[path]
	switch reason := s.keepsDamaged(path, !tried.IsZero() && !fault.notDurable); {
	case fault.notDurable && time.Since(tried) < diskRests*s.options.QuarantineAfter:
	case reason != "":
		if !seen.told {
			s.logger.Warn("the damaged file stays where it is", "segment", fault.Segment, "path", path, "reason", reason)
		}
		seen.told = true
	case time.Since(seen.since) >= s.options.QuarantineAfter:
		if err := s.setAside(path, fault); err != nil { // it is tried again in the next round
			if !seen.told {
				s.logger.Warn("the damaged file cannot be set aside", "segment", fault.Segment, "path", path, "error", err)
			}
			seen.told = true
		}
		q.tried[path] = time.Now()
	}
	q.damaged[path] = seen
}

// keepsDamaged says why a damaged file must not be set aside, which it once was, or not.
func (s *store) keepsDamaged(path string, tried bool) string {
	if _, err := s.options.FS.Stat(filepath.Join(s.queueDir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		return "the queue is written in this directory; docstore-updater check says what is lost"
	}
	if _, err := s.options.FS.Stat(path + queue.AsideSuffix); tried && !errors.Is(err, fs.ErrNotExist) {
		return "the copy before it was damaged, too: the source may be; docstore-updater check there will tell"
	}
	return ""
}

// setAside renames a damaged file. What may lie in it and has not been read is
// unknown from then on, so an id that is not in the index may exist.
func (s *store) setAside(path string, fault Fault) error {
	f, ok := parseSegmentName(filepath.Base(path))
	if !ok {
		return errors.Newf("%s is no segment", path)
	}
	f.path = path
	end := s.queue.End()
	s.mu.Lock()
	_, awaited := s.mu.awaited[f.segmentKey]
	s.mu.awaited[f.segmentKey] = f
	if s.mu.tail.position.Next.Compare(end.Next) < 0 {
		s.mu.reached = false
	}
	s.stateChanged()
	s.mu.Unlock()
	err := s.options.FS.Rename(path, path+queue.AsideSuffix)
	if err == nil {
		err = s.options.FS.SyncDir(s.queueDir)
	}
	s.mu.Lock()
	if err == nil {
		s.collection.quarantined.Add(1)
		s.mu.faults.replace(f, []Fault{s.asideFault(f)})
	} else if !awaited {
		delete(s.mu.awaited, f.segmentKey)
	}
	s.stateChanged()
	s.mu.Unlock()
	if err == nil {
		s.logger.Error("a damaged file was set aside, so that it is copied again",
			"segment", fault.Segment, "path", path+queue.AsideSuffix, "offset", fault.Offset, "reason", fault.Reason)
	}
	return err
}

// asideFault stands for a file until its new copy is there.
func (s *store) asideFault(f segmentFile) Fault {
	return Fault{
		Segment: f.id, Path: f.path + queue.AsideSuffix, Since: s.options.Now(),
		Reason: "damaged and set aside; waiting for another copy",
	}
}

// loadAside notes the segments that an earlier run has set aside and that have
// not come again.
func (s *store) loadAside() error {
	aside, err := s.listAside()
	if err != nil {
		return err
	}
	files, err := listSegments(s.options.FS, s.queueDir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range aside {
		if !slices.ContainsFunc(files, func(there segmentFile) bool { return there.standsFor(f) }) {
			s.mu.awaited[f.segmentKey] = f
			s.mu.faults.replace(f, []Fault{s.asideFault(f)})
		}
	}
	return nil
}

// listAside returns what was set aside, by the paths that it had before.
func (s *store) listAside() ([]segmentFile, error) {
	names, err := s.options.FS.List(s.queueDir)
	if err != nil {
		return nil, err
	}
	var aside []segmentFile
	for _, name := range names {
		before, isAside := strings.CutSuffix(name, queue.AsideSuffix)
		if f, ok := parseSegmentName(before); ok && isAside {
			f.path = filepath.Join(s.queueDir, before)
			aside = append(aside, f)
		}
	}
	return aside, nil
}

// noteArrived forgets that files are awaited which are there again, or a rewrite
// that stands for them.
func (s *store) noteArrived(files []segmentFile) {
	s.mu.Lock()
	arrived := false
	for key, awaited := range s.mu.awaited {
		i := slices.IndexFunc(files, func(there segmentFile) bool { return there.standsFor(awaited) })
		if i < 0 {
			continue
		}
		delete(s.mu.awaited, key)
		arrived = true
		if !files[i].sealed || files[i].segmentKey != key { // else it is verified, and that says what to think of it
			s.mu.faults.replace(awaited, nil)
		}
	}
	at := s.mu.tail.position
	if arrived {
		s.stateChanged()
	}
	s.mu.Unlock()
	if arrived {
		// If it holds nothing that is new, the tail has no reason to say so.
		s.reachedEnd(at, s.atEnd(at))
	}
}

// awaits tells whether a segment that was set aside is missing at a place in
// the queue or behind it. s.mu must be locked.
func (s *store) awaits(from queue.SegmentID) bool {
	for _, f := range s.mu.awaited {
		if f.last >= from {
			return true
		}
	}
	return false
}

// removeAside removes what was set aside of segments that are sound now. While
// a fault stops the tail nothing goes: the files that are here may be of
// another queue.
func (s *store) removeAside(files []segmentFile) {
	aside, err := s.listAside()
	if err != nil || len(aside) == 0 {
		return
	}
	var sound []segmentFile
	s.mu.Lock()
	for _, f := range files {
		if f.sealed && s.verified.isSound(f) && !s.mu.faults.has(f) &&
			s.mu.faults.tail == nil && f.id <= s.mu.tail.position.Next.Segment {
			sound = append(sound, f)
		}
	}
	s.mu.Unlock()
	for _, f := range aside {
		if !slices.ContainsFunc(sound, func(there segmentFile) bool { return there.standsFor(f) }) {
			continue
		}
		if err := s.options.FS.Remove(f.path + queue.AsideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("what was set aside cannot be removed", "path", f.path+queue.AsideSuffix, "error", err)
			continue
		}
		s.logger.Info("a sound copy has come; what was set aside is removed", "segment", f.id, "path", f.path+queue.AsideSuffix)
	}
}
