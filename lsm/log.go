package lsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/wal"
)

// logFile is a log that holds writes which are not in tables yet.
type logFile struct {
	number uint64
	path   string
	// writer is nil for a log that was there when the store was opened.
	writer *wal.Writer
	bytes  int64 // of such a log
	// durable is set once all of a log that is not written any more is durable.
	// Guarded by DB.syncing.
	durable bool
	// named is set once the directory has been synced with the log in it.
	// Guarded by DB.syncing.
	named bool
}

func (l *logFile) close() error {
	if l.writer == nil {
		return nil
	}
	return l.writer.Close()
}

// newLog begins a log with room for a memtable, or for one record if that is
// larger. Called under mu.
func (db *DB) newLog(recordBytes int) error {
	number := db.mu.nextNumber
	db.mu.nextNumber++
	path := db.env.path(logName(number))
	writer, err := db.createLog(path, number, max(db.memtableBytes(), wal.CapacityFor(recordBytes)))
	if err != nil {
		if gone := db.env.fs.Remove(path); gone == nil || isNotExist(gone) {
			db.mu.nextNumber = number // so that the next attempt fails with the same words
		}
		return errors.Wrap(err, "lsm: begin a log")
	}
	db.mu.log = &logFile{number: number, path: path, writer: writer}
	db.mu.logs = append(db.mu.logs, db.mu.log)
	if m := db.current.Load().memtables[0]; m.log == 0 {
		m.log = number
	}
	return nil
}

// Sync makes all writes that returned before the call survive loss of power.
func (db *DB) Sync() error {
	if db.options.ReadOnly {
		return db.readOnlyError()
	}
	if db.options.Durability == None {
		return db.Flush()
	}
	return db.syncThrough(db.visible.Load())
}

// errOldLog: a log was there when the store was opened. If a sync of it has failed in
// the process that wrote it, another one says nothing of that (internal/vfs).
var errOldLog = errors.New("lsm: whether a log of an earlier process is durable cannot be known")

// syncThrough makes the writes up to a sequence number durable. Writers that
// wait for each other here find, most of them, that it has been done for them. If
// a log cannot be synced, what is in it becomes durable as a table.
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

// groupSync syncs the logs, oldest first, so that a sync mark in one proves that
// all before it were durable.
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

// errLogFailed marks what failLogs returns.
var errLogFailed = errors.New("lsm: a log failed")

// failLogs gives up the logs there are: one that could not be written or synced may
// hold anything behind its last good byte, and what the disk has of it nobody knows.
// So no other log may follow on it, and writes wait until all that is in memory has
// become tables and the logs are obsolete. Called under mu.
func (db *DB) failLogs(err error) error {
	err = errors.WithStack(fmt.Errorf("%w: %w", errLogFailed, err))
	if db.mu.logError == nil {
		db.env.logger.Error("a log failed; writes wait until what is in memory is in tables", "dir", db.env.dir, "error", err)
		db.mu.logError, db.mu.goodLog = err, db.mu.nextNumber
		db.mu.log = nil
		db.mu.changed.Broadcast()
	}
	return err
}
