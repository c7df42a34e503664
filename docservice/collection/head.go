package collection

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/ctxtime"
	"docstore/queue"
)

// The head file says how far the queue reached at its source when the file was written;
// docstore-sync copies it before the segments. A machine that starts empty, or returns
// after an absence, therefore knows that it lacks documents: the collection becomes ready
// when the tail reaches the end named by the first head file read. Later head files do not
// revoke readiness, except through MaxStaleness. Without a head file, from an older updater
// or a plain copy, the collection is ready at the end of its segments. If a head file is
// required and names no entry, the collection is ready without segments: a shard can be empty.

// headState is the state of the head file.
type headState struct {
	// target is the position that the tail must reach for the collection to be ready: the
	// end named by the first head file, or by a later one if it is earlier, as after a
	// change of history. Zero: no head file was read.
	target queue.Position
	// written is the time in the latest head file.
	written time.Time
	// failure is the error of reading the head file, nil if it was read or does not exist.
	failure error
}

// runHead reads the head file periodically, and detects that the tail is idle.
func (f *follower) runHead(ctx context.Context) {
	applied := uint64(0)
	for ctxtime.Sleep(ctx, f.options.RetryInterval) {
		applied = f.health.detectIdle(applied)
		if f.readHead() {
			f.checkEnd() // without new entries the tail does not report this itself
		}
	}
}

// readHead reads the head file and records its contents. It ignores the head file of
// another queue; that of an empty shard has no queue's id. It reports whether the collection
// may have become ready.
func (f *follower) readHead() (nearer bool) {
	head, err := queue.ReadHead(f.options.FS, f.queueDir)
	switch id := f.queueID.Load(); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && id != nil && *id != head.Queue && head.Queue != [16]byte{}:
		return f.health.headRead(nil)
	case err != nil:
		fault := &Fault{Path: filepath.Join(f.queueDir, queue.HeadName), Reason: err.Error(), Since: f.options.Now()}
		if f.health.headFailed(err, fault) {
			f.logger.Error("reading the head file of the queue failed", "path", fault.Path, "error", err)
		}
		return false
	}
	return f.health.headRead(&head)
}

// reaches reports whether a position is at or after the target. It is false while reading
// the file fails, or there is none although one is required, and no earlier read succeeded.
func (h *headState) reaches(at queue.Position, required bool) bool {
	if h.target.IsZero() {
		return h.failure == nil && (!required || !h.written.IsZero())
	}
	return at.Queue == h.target.Queue && at.Next.Compare(h.target.Next) >= 0
}

// isEmpty reports whether the head file says that the queue has no entries.
func (h *headState) isEmpty() bool {
	return h.failure == nil && h.target.IsZero() && !h.written.IsZero()
}

// isStale reports whether the latest head file is older than limit; 0 means no limit.
func (h *headState) isStale(now time.Time, limit time.Duration) bool {
	return limit > 0 && now.Sub(h.written) > limit
}
