package lsm

// leftovers are what flushes and merges leave to be done by a worker of its own:
// none of it is needed for what comes next, and closing and removing files takes
// longer than naming a table in the manifest does (20 to 80 ms of 30 to 100 where
// other tables are being written).
type leftovers struct {
	logs    []*logFile // to be closed and removed
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
	db.closeLogs(left.logs)
	for _, log := range left.logs {
		left.paths = append(left.paths, log.path)
	}
	for _, path := range left.paths {
		if err := db.env.fs.Remove(path); err != nil {
			db.env.logger.Warn("a file could not be removed", "path", path, "error", err)
		}
	}
	if left.filters {
		db.saveFilters()
	}
	return nil
}

func (db *DB) closeLogs(logs []*logFile) {
	db.syncing.Lock()
	defer db.syncing.Unlock()
	for _, log := range logs {
		if err := log.close(); err != nil {
			db.env.logger.Warn("a log could not be closed", "log", log.path, "error", err)
		}
	}
}
