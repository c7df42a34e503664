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
//   - N.seg.bad is not there yet. A copy that is damaged again says that the
//     source may be, and to fetch it over and over would mend nothing. So there
//     is one attempt until a copy is sound; then N.seg.bad is removed.

// lockName is the name of the lock in a directory where a queue is written.
const lockName = "LOCK"

// quarantine is what the background pass remembers about damaged files.
type quarantine struct {
	damaged map[string]sighting // by path
}

// sighting is a damaged file as it was first seen.
type sighting struct {
	version fileVersion
	since   time.Time
	told    bool // why it is not set aside
}

// runQuarantine is one round: awaited copies that have come are noted, damaged
// files set aside, and what was set aside before removed if a sound copy came.
func (c *Collection) runQuarantine(q *quarantine, files []segmentFile) {
	c.noteArrived(files)
	if !c.options.Quarantine {
		return
	}
	suspects := c.damagedFiles()
	for path := range q.damaged {
		if _, still := suspects[path]; !still {
			delete(q.damaged, path)
		}
	}
	for path, fault := range suspects {
		c.considerDamaged(q, path, fault)
	}
	c.removeAside(files)
}

// damagedFiles are the files with wrong bytes, each with one of its faults.
func (c *Collection) damagedFiles() map[string]Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[string]Fault)
	if tail := c.mu.faults.tail; tail != nil && tail.content {
		found[tail.Path] = *tail
	}
	for _, faults := range c.mu.faults.segments {
		for _, f := range faults {
			if _, known := found[f.Path]; f.content && !known {
				found[f.Path] = f
			}
		}
	}
	return found
}

// considerDamaged sets a damaged file aside once it may be.
func (c *Collection) considerDamaged(q *quarantine, path string, fault Fault) {
	info, err := c.options.FS.Stat(path)
	if err != nil {
		return // it is being replaced
	}
	version := fileVersion{file: info.ID, bytes: info.Size, modified: info.ModTime}
	seen, known := q.damaged[path]
	if !known || seen.version != version {
		seen = sighting{version: version, since: time.Now()}
	}
	switch reason := c.keepsDamaged(path); {
	case seen.told:
	case reason != "":
		seen.told = true
		c.logger.Warn("the damaged file stays where it is", "segment", fault.Segment, "path", path, "reason", reason)
	case time.Since(seen.since) >= c.options.QuarantineAfter:
		if err := c.setAside(path, fault); err != nil {
			seen.told = true
			c.logger.Warn("the damaged file cannot be set aside", "segment", fault.Segment, "path", path, "error", err)
		}
	}
	q.damaged[path] = seen
}

// keepsDamaged says why a damaged file must not be set aside.
func (c *Collection) keepsDamaged(path string) string {
	if _, err := c.options.FS.Stat(filepath.Join(c.queueDir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		return "the queue is written in this directory; docstore-updater check says what is lost"
	}
	if _, err := c.options.FS.Stat(path + queue.AsideSuffix); !errors.Is(err, fs.ErrNotExist) {
		return "the copy before it was damaged, too: the source may be; docstore-updater check there will tell"
	}
	return ""
}

// setAside renames a damaged file. What may lie in it and has not been read is
// unknown from then on, so an id that is not in the index may exist.
func (c *Collection) setAside(path string, fault Fault) error {
	f, ok := parseSegmentName(filepath.Base(path))
	if !ok {
		return errors.Newf("%s is no segment", path)
	}
	f.path = path
	end := c.queue.End()
	c.mu.Lock()
	_, awaited := c.mu.awaited[f.segmentKey]
	c.mu.awaited[f.segmentKey] = f
	if c.mu.tail.position.Next.Compare(end.Next) < 0 {
		c.following.Store(false)
	}
	c.mu.Unlock()
	err := c.options.FS.Rename(path, path+queue.AsideSuffix)
	if err == nil {
		err = c.options.FS.SyncDir(c.queueDir)
	}
	c.mu.Lock()
	if err == nil {
		c.quarantined.Add(1)
		c.mu.faults.replace(f, []Fault{c.asideFault(f)})
	} else if !awaited {
		delete(c.mu.awaited, f.segmentKey)
	}
	c.notify()
	c.mu.Unlock()
	if err == nil {
		c.logger.Error("a damaged file was set aside, so that it is copied again",
			"segment", fault.Segment, "path", path+queue.AsideSuffix, "offset", fault.Offset, "reason", fault.Reason)
	}
	return err
}

// asideFault stands for a file until its new copy is there.
func (c *Collection) asideFault(f segmentFile) Fault {
	return Fault{
		Segment: f.id, Path: f.path + queue.AsideSuffix, Since: c.options.Now(),
		Reason: "damaged and set aside; waiting for another copy",
	}
}

// loadAside notes the segments that an earlier run has set aside and that have
// not come again.
func (c *Collection) loadAside() error {
	aside, err := c.listAside()
	if err != nil {
		return err
	}
	files, err := listSegments(c.options.FS, c.queueDir)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range aside {
		if !slices.ContainsFunc(files, func(there segmentFile) bool { return there.standsFor(f) }) {
			c.mu.awaited[f.segmentKey] = f
			c.mu.faults.replace(f, []Fault{c.asideFault(f)})
		}
	}
	return nil
}

// listAside returns what was set aside, by the paths that it had before.
func (c *Collection) listAside() ([]segmentFile, error) {
	names, err := c.options.FS.List(c.queueDir)
	if err != nil {
		return nil, err
	}
	var aside []segmentFile
	for _, name := range names {
		before, isAside := strings.CutSuffix(name, queue.AsideSuffix)
		if f, ok := parseSegmentName(before); ok && isAside {
			f.path = filepath.Join(c.queueDir, before)
			aside = append(aside, f)
		}
	}
	return aside, nil
}

// noteArrived forgets that files are awaited which are there again, or a rewrite
// that stands for them.
func (c *Collection) noteArrived(files []segmentFile) {
	c.mu.Lock()
	arrived := false
	for key, awaited := range c.mu.awaited {
		i := slices.IndexFunc(files, func(there segmentFile) bool { return there.standsFor(awaited) })
		if i < 0 {
			continue
		}
		delete(c.mu.awaited, key)
		arrived = true
		if !files[i].sealed || files[i].segmentKey != key { // else it is verified, and that says what to think of it
			c.mu.faults.replace(awaited, nil)
		}
	}
	at := c.mu.tail.position
	if arrived {
		c.notify()
	}
	c.mu.Unlock()
	if arrived {
		// If it holds nothing that is new, the tail has no reason to say so.
		c.reachedEnd(at, c.atEnd(at))
	}
}

// awaits tells whether a segment that was set aside is missing at a place in
// the queue or behind it. c.mu must be locked.
func (c *Collection) awaits(from queue.SegmentID) bool {
	for _, f := range c.mu.awaited {
		if f.last >= from {
			return true
		}
	}
	return false
}

// removeAside removes what was set aside of segments that are sound now. While
// a fault stops the tail nothing goes: the files that are here may be of
// another queue.
func (c *Collection) removeAside(files []segmentFile) {
	aside, err := c.listAside()
	if err != nil || len(aside) == 0 {
		return
	}
	var sound []segmentFile
	c.mu.Lock()
	for _, f := range files {
		if f.sealed && c.verified.isSound(f) && !c.mu.faults.has(f) &&
			c.mu.faults.tail == nil && f.id <= c.mu.tail.position.Next.Segment {
			sound = append(sound, f)
		}
	}
	c.mu.Unlock()
	for _, f := range aside {
		if !slices.ContainsFunc(sound, func(there segmentFile) bool { return there.standsFor(f) }) {
			continue
		}
		if err := c.options.FS.Remove(f.path + queue.AsideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.logger.Warn("what was set aside cannot be removed", "path", f.path+queue.AsideSuffix, "error", err)
			continue
		}
		c.logger.Info("a sound copy has come; what was set aside is removed", "segment", f.id, "path", f.path+queue.AsideSuffix)
	}
}
