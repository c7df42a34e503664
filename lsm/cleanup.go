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
	mu struct {
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

// take returns all work.
func (o *obsoleteFiles) take() leftovers {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.mu.leftovers
	o.mu.leftovers = leftovers{}
	return left
}

// takeLast returns the work of Close. It leaves the files that a checkpoint uses to the
// next Open.
func (o *obsoleteFiles) takeLast() leftovers {
	left := o.take()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.checkpoints > 0 {
		left.paths = nil
	}
	left.filters = true
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
// removes files that it could not remove.
func (db *DB) cleanUp(left leftovers) {
	if err := db.writer.logs.closeFiles(left.logs); err != nil {
		db.env.Logger.Warn("an obsolete log could not be closed", "dir", db.env.dir, "error", err)
	}
	for _, log := range left.logs {
		left.paths = append(left.paths, log.path)
	}
	for _, path := range left.paths {
		if err := db.env.FS.Remove(path); err != nil {
			db.env.Logger.Warn("a file could not be removed", "path", path, "error", err)
		}
	}
	if left.filters {
		db.saveFilters()
	}
}
