package lsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/wal"
)

// logFile is a log with writes that are not in tables.
type logFile struct {
	number uint64
	path   string
	// writer is nil for a log that existed when the store was opened.
	writer *wal.Writer
	bytes  int64 // of a log without writer
	// durable is set once a log that is no longer written is completely durable.
	// Guarded by DB.syncing.
	durable bool
	// named is set once the directory was synced with the log in it. Guarded by
	// DB.syncing.
	named bool
}

func (l *logFile) close() error {
	if l.writer == nil {
		return nil
	}
	return l.writer.Close()
}

// newLog creates a log with space for a memtable, or for one larger record. Called
// under mu.
func (db *DB) newLog(recordBytes int) error {
	number := db.mu.nextNumber
	db.mu.nextNumber++
	path := db.env.path(logName(number))
	writer, err := db.createLog(path, number, max(db.memtableBytes(), wal.CapacityFor(recordBytes)))
	if err != nil {
		if gone := db.env.fs.Remove(path); gone == nil || isNotExist(gone) {
			db.mu.nextNumber = number // the next attempt then fails with the same error message
		}
		return errors.Wrap(err, "lsm: create a log")
	}
	db.mu.log = &logFile{number: number, path: path, writer: writer}
	db.mu.logs = append(db.mu.logs, db.mu.log)
	if m := db.current.Load().memtables[0]; m.log == 0 {
		m.log = number
	}
	return nil
}

// Sync makes all writes that returned before the call survive a power cut.
func (db *DB) Sync() error {
	if db.options.ReadOnly {
		return db.readOnlyError()
	}
	if db.options.Durability == None {
		return db.Flush()
	}
	return db.syncThrough(db.visible.Load())
}

// errOldLog: a log existed when the store was opened. A failed sync of it in the
// process that wrote it is not reported to other processes (internal/vfs).
var errOldLog = errors.New("lsm: the durability of a log of an earlier process is unknown")

// syncThrough makes the writes up to a sequence number durable. Of several waiting
// callers one does the work for all. If a log cannot be synced, its writes are made
// durable by a flush.
func (db *DB) syncThrough(sequence uint64) error {
	failed := db.groupSync(sequence)
	if !errors.Is(failed, errLogFailed) && !errors.Is(failed, errOldLog) {
		return failed
	}
	if err := db.Flush(); err != nil {
		return errors.CombineErrors(err, failed)
	}
	return nil
}

// groupSync syncs the logs, oldest first, so that a sync mark in one proves that all
// older logs were durable.
func (db *DB) groupSync(sequence uint64) error {
	start := time.Now()
	db.syncing.Lock()
	defer db.syncing.Unlock()
	if db.syncing.through >= sequence {
		return nil
	}
	db.mu.Lock()
	err, through := db.mu.logError, db.visible.Load()
	logs, active := append([]*logFile(nil), db.mu.logs...), db.mu.log
	closing := db.mu.closing
	db.mu.Unlock()
	if closing {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(logs, func(l *logFile) bool { return l.writer == nil }) {
		return errOldLog
	}
	if err := db.syncLogs(logs, active); err != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		return db.failLogs(err)
	}
	db.syncing.through = through
	db.counters.syncs.Add(1)
	db.counters.syncNanos.Add(uint64(time.Since(start)))
	return nil
}

func (db *DB) syncLogs(logs []*logFile, active *logFile) error {
	named := true
	for _, log := range logs {
		named = named && log.named
	}
	if !named {
		if err := db.env.fs.SyncDir(db.env.dir); err != nil {
			return errors.Wrap(err, "lsm: sync the directory of the logs")
		}
	}
	for _, log := range logs {
		log.named = true
		if log.durable {
			continue
		}
		if err := log.writer.Sync(); err != nil {
			return err
		}
		log.durable = log != active
	}
	return nil
}

// errLogFailed marks errors of failLogs.
var errLogFailed = errors.New("lsm: a log failed")

// failLogs abandons the current logs: after a failed append or sync the contents of a
// log after its last valid record are unknown. So no other log may follow it, and
// writes wait until everything in memory is in tables and the logs are obsolete. Called
// under mu.
func (db *DB) failLogs(err error) error {
	err = errors.WithStack(fmt.Errorf("%w: %w", errLogFailed, err))
	if db.mu.logError == nil {
		db.env.logger.Error("a log failed; writes wait until memtables are flushed", "dir", db.env.dir, "error", err)
		db.mu.logError, db.mu.goodLog = err, db.mu.nextNumber
		db.mu.log = nil
		db.mu.changed.Broadcast()
	}
	return err
}
