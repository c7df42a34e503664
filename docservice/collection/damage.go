package collection

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// faultOf describes an error of the queue or the index. at is the address that was read, if
// any. Errors that differ only in the address have the same description, so that a fault is
// recorded once.
func (s *shared) faultOf(err error, at queue.Address) Fault {
	fault := Fault{Since: s.options.Now()}
	var inQueue *queue.CorruptionError
	var inIndex *lsm.CorruptionError
	var unread *lsm.ReadError
	var inFile *fs.PathError
	switch {
	case errors.As(err, &inQueue):
		fault.Segment, fault.Offset, fault.Path = inQueue.Segment, inQueue.Offset, inQueue.Path
		fault.Reason, fault.content = inQueue.Reason, true
		if inQueue.ID != "" {
			fault.Reason += ", in the document with id " + strconv.Quote(inQueue.ID)
		}
	case errors.As(err, &inIndex):
		fault.Offset, fault.Path, fault.Reason = inIndex.Offset, inIndex.Path, inIndex.Reason
	case errors.As(err, &unread):
		fault.Path, fault.Reason = unread.Path, "reading it failed: it was truncated, or its disk is failing"
	case errors.Is(err, errIndex):
		fault.Path, fault.Reason = s.number.path(s.collection.dir), err.Error()
	case errors.Is(err, queue.ErrForked):
		fault.Path = s.queueDir
		fault.Reason = err.Error() + fmt.Sprintf("; restore the files that were here before, or, if this queue is the right one, "+
			"stop the daemon, remove %s, and start it: the index is rebuilt from the queue", s.collection.dir)
	case errors.Is(err, queue.ErrTruncated):
		fault.Path, fault.Reason = s.queueDir, err.Error()
	case errors.Is(err, queue.ErrDiverged):
		fault.Segment, fault.content = at.Segment, true
		fault.Path, fault.Reason = filepath.Join(s.queueDir, sealedName(at.Segment)), err.Error()
	case errors.Is(err, queue.ErrMismatch):
		fault.Path, fault.Reason = s.queueDir, "the index has addresses where the queue has other ids"
	case at.Segment != 0:
		fault.Segment = at.Segment
		fault.Path = filepath.Join(s.queueDir, sealedName(at.Segment))
		if fault.Reason = "the file is missing"; !errors.Is(err, fs.ErrNotExist) {
			fault.Reason = errors.UnwrapAll(err).Error() // without the address
			if errors.As(err, &inFile) {
				fault.Path = inFile.Path // of a rewrite, for example
			}
		}
	default:
		fault.Path, fault.Reason = s.collection.dir, err.Error()
		if errors.As(err, &inFile) { // of a full disk, for example
			fault.Path = inFile.Path
		}
		if errors.Is(err, vfs.ErrNoSpace) && s.lacksInodes() {
			fault.Reason += "; bytes are free, but no inode: remove files, or create the file system again with more inodes"
		}
	}
	fault.IndexUnwritten = errors.Is(err, errIndexWrite)
	return fault
}

// lacksInodes reports whether no file can be created for the index although bytes are free.
func (s *shared) lacksInodes() bool {
	free, err := s.options.FS.Free(s.collection.dir)
	return err == nil && free.Inodes == 0 && free.Bytes > 0
}

// recordFault records why a document could not be read, and has the background pass verify
// the segment.
func (s *shared) recordFault(err error, at queue.Address) {
	fault := s.faultOf(err, at)
	if s.health.addFault(fault, fault.Segment != 0) {
		s.logDamage(fault)
		s.health.wakeVerifier()
	}
}

func (s *shared) logDamage(fault Fault) {
	s.logger.Error("damage: documents are unavailable",
		"segment", fault.Segment, "offset", fault.Offset, "path", fault.Path, "reason", fault.Reason)
}
