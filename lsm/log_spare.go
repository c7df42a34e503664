package lsm

import "docstore/wal"

// spareLog is the file of an obsolete log, kept for the next: a tenth of the processor
// time of 4 million writes went into the pages of new logs. There is one at most, and
// none of a log that was synced (wal.Writer.Retire).
//
// Its life, and what a crash leaves: the log is obsolete, and the manifest that says so
// durable. It gets the name of a spare file, so that whoever may be reading it
// finds its name gone (recovery.replay). Its header is erased, durably: whichever name
// a loss of power leaves it, it holds nothing. For a new log the header is written, and
// the file renamed: a log, from its name's first moment. Open removes spare files, Close
// its own.
type spareLog struct {
	path string
	file *wal.Spare
}

// keepSpare makes a log that is obsolete the spare one, if none is kept and it can be
// used again. Called under syncing.
func (db *DB) keepSpare(log *logFile) bool {
	db.mu.Lock()
	// Where there may be no room for a table nothing is kept.
	wanted := db.mu.spare == nil && !db.mu.closing && db.mu.flushError == nil && db.mu.mergeError == nil
	db.mu.Unlock()
	if !wanted || log.writer == nil || !log.writer.Reusable() {
		return false
	}
	path := db.env.path(spareName(log.number))
	if err := db.env.fs.Rename(log.path, path); err != nil {
		return false
	}
	log.path = path
	file, err := log.writer.Retire()
	if err != nil {
		return false
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.spare = &spareLog{path, file}
	return true
}

// createLog makes a log, of the spare file if that fits. One that does not, or cannot
// be used, goes. Called under mu.
func (db *DB) createLog(path string, number uint64, capacity int64) (*wal.Writer, error) {
	if spare := db.mu.spare; spare != nil && capacity <= db.memtableBytes() {
		db.mu.spare = nil
		if spare.file.Capacity() == capacity {
			writer, err := spare.file.Create(path, number)
			if err == nil {
				err = db.env.fs.Rename(spare.path, path)
			}
			if err == nil {
				return writer, nil
			}
			db.env.logger.Warn("a spare log could not be used", "path", spare.path, "error", err)
		}
		db.removeSpare(spare)
	}
	return wal.Create(path, number, &wal.Options{FS: db.env.fs, Capacity: capacity, Owner: db.env.id[:]})
}

// dropSpare removes the spare log, if there is one.
func (db *DB) dropSpare() {
	db.mu.Lock()
	spare := db.mu.spare
	db.mu.spare = nil
	db.mu.Unlock()
	if spare != nil {
		db.removeSpare(spare)
	}
}

// removeSpare removes a file that nobody can find any more. What it cannot remove, the
// next Open does.
func (db *DB) removeSpare(spare *spareLog) {
	_ = spare.file.Close()
	_ = db.env.fs.Remove(spare.path)
}
