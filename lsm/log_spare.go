package lsm

import "docstore/wal"

// spareLog is the file of an obsolete log, kept for the next log: allocating the pages
// of new logs took a tenth of the processor time of 4 million writes. There is at most
// one. A log that was synced is never reused (wal.Writer.Retire).
//
// Steps: the manifest that makes the log obsolete is durable. The file is renamed to a
// spare name, so that a concurrent reader of the log finds its name missing
// (recovery.replay). Its header is erased, durably: under whichever name a power cut
// leaves it, it has no records. For a new log the header is written and the file
// renamed: it is a valid log as soon as it has the name. Open removes spare files, and
// Close removes its own.
type spareLog struct {
	path string
	file *wal.Spare
}

// keepSpare keeps an obsolete log as the spare one, if there is none and the file is
// reusable. Called under syncing.
func (db *DB) keepSpare(log *logFile) bool {
	db.mu.Lock()
	// If there may be no disk space for a table, keep nothing.
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

// createLog creates a log, in the spare file if its size fits. An unusable spare file
// is removed. Called under mu.
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

// dropSpare removes the spare log, if any.
func (db *DB) dropSpare() {
	db.mu.Lock()
	spare := db.mu.spare
	db.mu.spare = nil
	db.mu.Unlock()
	if spare != nil {
		db.removeSpare(spare)
	}
}

// removeSpare removes an unreferenced spare file. If that fails, the next Open removes
// it.
func (db *DB) removeSpare(spare *spareLog) {
	_ = spare.file.Close()
	_ = db.env.fs.Remove(spare.path)
}
