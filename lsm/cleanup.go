package lsm

// leftovers are what flushes and merges leave to be done by a worker of its own:
// none of it is needed for what comes next, and closing and removing files takes
// longer than naming a table in the manifest does (20 to 80 ms of 30 to 100 where
// other tables are being written).
type leftovers struct {
	logs    []*logFile // to be closed and removed, or one of them kept
	paths   []string   // to be removed
	filters bool       // what is known of filters has to be saved
}

func (l *leftovers) empty() bool { return len(l.logs) == 0 && len(l.paths) == 0 && !l.filters }

// cleanupDue tells whether something can be cleaned up: not while a checkpoint
// counts on the files. Called under mu.
func (db *DB) cleanupDue() bool { return !db.mu.leftovers.empty() && db.mu.checkpoints == 0 }

// cleanUp closes logs, removes files that the manifest does not name any more, and
// saves what is known of filters. What it cannot remove, the next Open does; it
// returns no error.
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

// closeLogs closes logs, but for one that is kept, and returns what is to be removed.
func (db *DB) closeLogs(logs []*logFile) (paths []string) {
	db.syncing.Lock()
	defer db.syncing.Unlock()
	for _, log := range logs {
		if db.keepSpare(log) {
			continue
		}
		if err := log.close(); err != nil {
			db.env.logger.Warn("a log could not be closed", "log", log.path, "error", err)
		}
		paths = append(paths, log.path)
	}
	return paths
}
