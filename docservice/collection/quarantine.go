package collection

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/queue"
)

// Quarantine. rsync compares the size and time of files, so it never replaces a damaged
// copy of the same size and time. A damaged file is therefore renamed to N.seg.bad: the
// next run of rsync copies it again, and until then its sound documents are read from the
// renamed file.
//
// A file is quarantined if
//
//   - its bytes are wrong, or it ends before the position read so far (not if the queue
//     forked, or reading failed);
//   - it has not changed for QuarantineAfter, so that no process is writing to it;
//   - the directory is a copy: the directory where the queue is written has a LOCK file;
//   - N.seg.bad does not exist, or is older than this process. If the second copy is
//     damaged too, the source may be damaged, and a third would not help. There is one
//     attempt until a copy is sound; then N.seg.bad is removed. A power loss can damage
//     the second copy as well, so a restart allows another attempt. After an fsync
//     failure, attempts are repeated at intervals.

// lockName is the lock file in the directory where a queue is written.
const lockName = "LOCK"

// quarantine is the state of the background pass for damaged files.
type quarantine struct {
	damaged map[string]sighting  // by path
	tried   map[string]time.Time // when files were quarantined since the start, by path
}

// fsyncRetryFactor times QuarantineAfter is the time between two copies of a file whose
// fsync failed.
const fsyncRetryFactor = 12

// sighting is a version of a damaged file and the time when it was first seen.
type sighting struct {
	version fileVersion
	since   time.Time
	logged  bool // the reason why it is not quarantined
}

// runQuarantine runs one round: it clears awaited files that have arrived, quarantines
// damaged files, and removes quarantined files after a sound copy arrived.
func (v *verifier) runQuarantine(q *quarantine, files []segmentFile) {
	v.noteArrived(files)
	if !v.options.Quarantine || v.queueDir != v.collection.queueDir { // a replaced queue is not copied again
		return
	}
	suspects := v.health.damagedFiles()
	for path := range q.damaged {
		if _, still := suspects[path]; !still {
			delete(q.damaged, path)
		}
	}
	for path, fault := range suspects {
		v.quarantineIfDue(q, path, fault)
	}
	v.removeQuarantined(files)
}

// quarantineIfDue quarantines a damaged file if the conditions hold.
func (v *verifier) quarantineIfDue(q *quarantine, path string, fault Fault) {
	info, err := v.options.FS.Stat(path)
	if err != nil {
		return // it is being replaced
	}
	version := fileVersion{file: info.ID, bytes: info.Size, modified: info.ModTime}
	seen, known := q.damaged[path]
	if !known || seen.version != version {
		seen = sighting{version: version, since: time.Now()}
	}
	tried := q.tried[path]
	switch reason := v.reasonToKeep(path, !tried.IsZero() && !fault.notDurable); {
	case fault.notDurable && time.Since(tried) < fsyncRetryFactor*v.options.QuarantineAfter:
	case reason != "":
		if !seen.logged {
			v.logger.Warn("the damaged file is not quarantined", "segment", fault.Segment, "path", path, "reason", reason)
		}
		seen.logged = true
	case time.Since(seen.since) >= v.options.QuarantineAfter:
		if err := v.quarantineFile(path, fault); err != nil { // retried in the next round
			if !seen.logged {
				v.logger.Warn("quarantining a damaged file failed; retrying", "segment", fault.Segment, "path", path, "error", err)
			}
			seen.logged = true
		}
		q.tried[path] = time.Now()
	}
	q.damaged[path] = seen
}

// reasonToKeep returns why a damaged file must not be quarantined, or "". tried says that
// it was quarantined before.
func (v *verifier) reasonToKeep(path string, tried bool) string {
	if _, err := v.options.FS.Stat(filepath.Join(v.queueDir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		return "the queue is written in this directory; run docstore-updater check to see the damage"
	}
	if _, err := v.options.FS.Stat(path + queue.QuarantineSuffix); tried && !errors.Is(err, fs.ErrNotExist) {
		return "the previous copy was damaged, too; run docstore-updater check at the source"
	}
	return ""
}

// quarantineFile renames a damaged file. From then on its unread entries are unknown, so an
// id without an index entry may exist.
func (v *verifier) quarantineFile(path string, fault Fault) error {
	f, ok := parseSegmentName(filepath.Base(path))
	if !ok {
		return errors.Newf("%s is not a segment", path)
	}
	f.path = path
	undo := v.health.beginQuarantine(f, v.queue.End())
	err := v.options.FS.Rename(path, path+queue.QuarantineSuffix)
	if err == nil {
		err = v.options.FS.SyncDir(v.queueDir)
	}
	if err != nil {
		undo()
		return err
	}
	v.health.replaceFaults(f, []Fault{v.quarantinedFault(f)})
	v.collection.quarantined.Add(1)
	v.logger.Error("a damaged file was quarantined, so that it is copied again",
		"segment", fault.Segment, "path", path+queue.QuarantineSuffix, "offset", fault.Offset, "reason", fault.Reason)
	return nil
}

// quarantinedFault is the fault that stands for a quarantined file until a new copy
// arrives.
func (v *verifier) quarantinedFault(f segmentFile) Fault {
	return Fault{
		Segment: f.id, Path: f.path + queue.QuarantineSuffix, Since: v.options.Now(),
		Reason: "damaged and quarantined; waiting for another copy",
	}
}

// loadQuarantined records the segments that an earlier run quarantined and that have not
// been copied again.
func (v *verifier) loadQuarantined() error {
	aside, err := v.listQuarantined()
	if err != nil {
		return err
	}
	files, err := listSegments(v.options.FS, v.queueDir)
	if err != nil {
		return err
	}
	for _, f := range aside {
		if !slices.ContainsFunc(files, func(there segmentFile) bool { return there.supersedes(f) }) {
			v.health.await(f, v.quarantinedFault(f))
		}
	}
	return nil
}

// listQuarantined returns the quarantined files with their original paths.
func (v *verifier) listQuarantined() ([]segmentFile, error) {
	names, err := v.options.FS.List(v.queueDir)
	if err != nil {
		return nil, err
	}
	var aside []segmentFile
	for _, name := range names {
		before, isAside := strings.CutSuffix(name, queue.QuarantineSuffix)
		if f, ok := parseSegmentName(before); ok && isAside {
			f.path = filepath.Join(v.queueDir, before)
			aside = append(aside, f)
		}
	}
	return aside, nil
}

// noteArrived removes awaited files that have arrived, or are superseded by a rewrite.
func (v *verifier) noteArrived(files []segmentFile) {
	if v.health.arrived(files) {
		// If the file has no new entries, the tail does not report the end itself.
		v.follower.checkEnd()
	}
}

// removeQuarantined deletes the quarantined files of segments that are sound now. It
// deletes none while a fault stops the tail: the files may belong to another queue.
func (v *verifier) removeQuarantined(files []segmentFile) {
	aside, err := v.listQuarantined()
	if err != nil || len(aside) == 0 {
		return
	}
	var sound []segmentFile
	for _, f := range files {
		if f.sealed && v.verified.isSound(f) && v.health.isReadAndSound(f) {
			sound = append(sound, f)
		}
	}
	for _, f := range aside {
		if !slices.ContainsFunc(sound, func(there segmentFile) bool { return there.supersedes(f) }) {
			continue
		}
		if err := v.options.FS.Remove(f.path + queue.QuarantineSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.logger.Warn("deleting a quarantined file failed", "path", f.path+queue.QuarantineSuffix, "error", err)
			continue
		}
		v.logger.Info("a sound copy arrived; the quarantined file was deleted", "segment", f.id, "path", f.path+queue.QuarantineSuffix)
	}
}
