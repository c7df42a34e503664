package lsm

import (
	"fmt"
	"slices"
	"sync"
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
	// Guarded by logSet.syncing.
	durable bool
	// named is set once the directory was synced with the log in it. Guarded by
	// logSet.syncing.
	named bool
}

func (l *logFile) close() error {
	if l.writer == nil {
		return nil
	}
	return l.writer.Close()
}

// logSet holds the logs with writes that are not in tables, and the spare file for the
// next log.
//
// Invariants:
//
//   - all is ordered by number, and current is nil or its last log.
//   - After a failure there is no current log until all logs below goodFrom are obsolete.
//   - current and failure change only under both DB.mu and mu, so code that holds either
//     of them, such as a writer, can read them.
//
// Lock order: syncing, DB.mu, mu.
type logSet struct {
	env *environment

	// syncing is held while logs are synced or closed.
	syncing struct {
		sync.Mutex
		through uint64 // writes up to this sequence number are durable
	}
	mu struct {
		sync.Mutex
		current *logFile // nil before the first write to it
		all     []*logFile
		spare   *spareLog // file for the next log, or nil
		// failure is the error of a log. It is cleared once all writes that were in
		// memory at that time are in tables. Logs from number goodFrom on are not
		// affected.
		failure  error
		goodFrom uint64
	}
}

// current returns the log being written, or nil. Called under DB.mu.
func (s *logSet) current() *logFile { return s.mu.current }

// fits reports whether the current log has space for a record. Called under DB.mu.
func (s *logSet) fits(recordBytes int) bool {
	return s.mu.current != nil && s.mu.current.writer.Fits(recordBytes)
}

// failed reports whether a log has failed and its writes are not in tables. Called under
// DB.mu.
func (s *logSet) failed() bool { return s.mu.failure != nil }

// add adds a log that existed when the store was opened.
func (s *logSet) add(log *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.all = append(s.mu.all, log)
}

// begin creates the current log. It reuses the spare file if the log has the size of a
// full memtable. Called under DB.mu.
func (s *logSet) begin(path string, number uint64, capacity, memtableBytes int64) error {
	var spare *spareLog
	if capacity <= memtableBytes {
		spare = s.takeSpare()
	}
	writer, err := s.create(path, number, capacity, spare)
	if err != nil {
		return errors.Wrap(err, "lsm: create a log")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = &logFile{number: number, path: path, writer: writer}
	s.mu.all = append(s.mu.all, s.mu.current)
	return nil
}

// endCurrent makes the next write begin a log. Called under DB.mu.
func (s *logSet) endCurrent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = nil
}

// fail abandons the current logs, and reports whether there was no failure before. next
// is the number of the next log. Called under DB.mu.
func (s *logSet) fail(err error, next uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failure != nil {
		return false
	}
	s.mu.failure, s.mu.goodFrom, s.mu.current = err, next, nil
	return true
}

// cut removes the logs below firstLog, which no memtable needs, and returns them. It
// reports whether this resolves a failure. Called under DB.mu.
func (s *logSet) cut(firstLog uint64) (obsolete []*logFile, resolved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.mu.all) && s.mu.all[n].number < firstLog {
		n++
	}
	obsolete = s.mu.all[:n]
	s.mu.all = slices.Clone(s.mu.all[n:])
	if resolved = s.mu.failure != nil && firstLog >= s.mu.goodFrom; resolved {
		s.mu.failure = nil
	}
	return obsolete, resolved
}

// list returns the logs, the current one, and the failure if there is one.
func (s *logSet) list() (all []*logFile, current *logFile, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.all), s.mu.current, s.mu.failure
}

// bytes returns the size of the logs.
func (s *logSet) bytes() (bytes int64) {
	all, _, _ := s.list()
	for _, log := range all {
		bytes += log.bytes
		if log.writer != nil {
			bytes += log.writer.Size()
		}
	}
	return bytes
}

// close closes all logs, after which none is used.
func (s *logSet) close() (err error) {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	all, _, _ := s.list()
	for _, log := range all {
		err = errors.CombineErrors(err, log.close())
	}
	return err
}

// sync syncs the logs, oldest first, so that a sync mark in one proves that all older
// logs were durable. Called under syncing.
func (s *logSet) sync(logs []*logFile, current *logFile) error {
	named := true
	for _, log := range logs {
		named = named && log.named
	}
	if !named {
		if err := s.env.fs.SyncDir(s.env.dir); err != nil {
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
		log.durable = log != current
	}
	return nil
}

// newLog begins a log with space for a memtable, or for one larger record. Called under
// mu.
func (db *DB) newLog(recordBytes int) error {
	number, full := db.takeNumber(), db.memtableBytes()
	path := db.env.path(logName(number))
	if err := db.logs.begin(path, number, max(full, wal.CapacityFor(recordBytes)), full); err != nil {
		if gone := db.env.fs.Remove(path); gone == nil || isNotExist(gone) {
			db.mu.nextNumber = number // the next attempt then fails with the same error message
		}
		return err
	}
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

// errOldLog: a log existed when the store was opened. A failed sync of it in the process
// that wrote it is not reported to other processes (internal/vfs).
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

// groupSync syncs all logs, unless another call has made the writes durable. It does not
// wait for writers.
func (db *DB) groupSync(sequence uint64) error {
	start, s := time.Now(), &db.logs
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.syncing.through >= sequence {
		return nil
	}
	// The sequence number comes first: the logs listed after it have all these writes,
	// except those that are in tables.
	through := db.visible.Load()
	logs, current, failure := s.list()
	if db.isClosing() {
		return ErrClosed
	}
	if failure != nil {
		return failure
	}
	if slices.ContainsFunc(logs, func(l *logFile) bool { return l.writer == nil }) {
		return errOldLog
	}
	if err := s.sync(logs, current); err != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		return db.failLogs(err)
	}
	s.syncing.through = through
	db.counters.syncs.Add(1)
	db.counters.syncNanos.Add(uint64(time.Since(start)))
	return nil
}

// errLogFailed marks errors of failLogs.
var errLogFailed = errors.New("lsm: a log failed")

// failLogs abandons the current logs: after a failed append or sync the contents of a log
// after its last valid record are unknown. So no other log may follow it, and writes wait
// until everything in memory is in tables and the logs are obsolete. Called under mu.
func (db *DB) failLogs(err error) error {
	err = errors.WithStack(fmt.Errorf("%w: %w", errLogFailed, err))
	if db.logs.fail(err, db.mu.nextNumber) {
		db.env.logger.Error("a log failed; writes wait until memtables are flushed", "dir", db.env.dir, "error", err)
		db.mu.changed.Broadcast()
	}
	return err
}
