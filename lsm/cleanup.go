package lsm

// leftovers is the work that flushes and merges leave to the cleanup worker: the next
// flush or merge does not depend on it, and closing and removing files takes longer
// than replacing the manifest (20 to 80 ms of 30 to 100 ms while other tables are being
// written).
type leftovers struct {
	logs    []*logFile // to be closed, and removed or reused
	paths   []string   // to be removed
	filters bool       // filter scores must be saved
}

func (l *leftovers) empty() bool { return len(l.logs) == 0 && len(l.paths) == 0 && !l.filters }

// cleanupDue reports whether there are leftovers and no checkpoint is using the files.
// Called under mu.
func (db *DB) cleanupDue() bool { return !db.mu.leftovers.empty() && db.mu.checkpoints == 0 }

// cleanUp closes logs, removes obsolete files and saves filter scores. The next Open
// removes files that it could not remove; it always returns nil.
func (db *DB) cleanUp() error {
	db.mu.Lock()
	left := db.mu.leftovers
	db.mu.leftovers = leftovers{}
	db.mu.Unlock()
	for _, path := range append(left.paths, db.closeLogs(left.logs)...) {
		if err := db.env.fs.Remove(path); err != nil {
			db.env.logger.Warn("a file could not be removed", "path", path, "error", err)
		}
	}
	if left.filters {
		db.saveFilters()
	}
	return nil
}

// closeLogs closes obsolete logs and returns the paths to be removed. It keeps no spare
// file if the disk may lack space for a table.
func (db *DB) closeLogs(logs []*logFile) (paths []string) {
	db.mu.Lock()
	keep := !db.mu.closing && db.mu.flushError == nil && db.mu.mergeError == nil
	db.mu.Unlock()
	return db.logs.retire(logs, keep)
}
