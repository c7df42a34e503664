package lsm

import (
	"sync"

	"docstore/lsm/internal/table"
)

// leftovers is work for the cleanup worker.
type leftovers struct {
	logs    []*logFile // to be closed and removed
	paths   []string   // to be removed
	filters bool       // filter scores must be saved
}

// obsoleteFiles collects the work that flushes and merges leave to the cleanup worker: the
// next flush or merge does not depend on it, and closing and removing files takes longer
// than replacing the manifest (20 to 80 ms of 30 to 100 ms while other tables are being
// written). No work is due while a checkpoint uses the files.
//
// Lock order: scheduler.mu, mu.
type obsoleteFiles struct {
	env     *environment
	logs    *logSet
	filters *filterSet
	mu      struct {
		sync.Mutex
		leftovers
		checkpoints int // running
	}
}

// add adds logs and tables that the manifest no longer names.
func (o *obsoleteFiles) add(logs []*logFile, tables []*table.Reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.logs = append(o.mu.logs, logs...)
	for _, t := range tables {
		o.mu.paths = append(o.mu.paths, t.Path)
	}
	o.mu.filters = true
}

// due reports whether there is work.
func (o *obsoleteFiles) due() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return (len(o.mu.logs) > 0 || len(o.mu.paths) > 0 || o.mu.filters) && o.mu.checkpoints == 0
}

// take returns all work. The last time, in Close, that includes the scores, but not the
// files that a checkpoint uses: the next Open removes them.
func (o *obsoleteFiles) take(last bool) leftovers {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.mu.leftovers
	o.mu.leftovers = leftovers{}
	if last {
		left.filters = true
		if o.mu.checkpoints > 0 {
			left.paths = nil
		}
	}
	return left
}

// hold prevents the removal of files until release.
func (o *obsoleteFiles) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.checkpoints++
}

func (o *obsoleteFiles) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.checkpoints--
}

// cleanUp closes logs, removes obsolete files and saves filter scores. The next Open
// removes files that it could not remove. last is set in Close.
func (o *obsoleteFiles) cleanUp(last bool) {
	left := o.take(last)
	if err := o.logs.closeFiles(left.logs); err != nil {
		o.env.Logger.Warn("an obsolete log could not be closed", "dir", o.env.dir, "error", err)
	}
	for _, log := range left.logs {
		left.paths = append(left.paths, log.path)
	}
	for _, path := range left.paths {
		if err := o.env.FS.Remove(path); err != nil {
			o.env.Logger.Warn("a file could not be removed", "path", path, "error", err)
		}
	}
	if left.filters {
		o.filters.save()
	}
}
