package lsm

import (
	"slices"
	"sync"

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

// logSet holds the logs with writes that are not in tables.
//
// Invariants:
//
//   - all is ordered by number, and current is nil or its last log.
//   - After a failure there is no current log until all logs below goodFrom are obsolete.
//   - current and failure change only under both committer.mu and mu, so code that holds
//     either of them can read them.
//
// Lock order: syncing, committer.mu, mu.
type logSet struct {
	env *environment

	syncing sync.Mutex // held while logs are synced or closed
	mu      struct {
		sync.Mutex
		current *logFile // nil before the first write to it
		all     []*logFile
		// failure is the error of a log. It is cleared once all writes that were in
		// memory at that time are in tables. Logs from number goodFrom on are not
		// affected.
		failure  error
		goodFrom uint64
	}
}

// current returns the log being written, or nil. Called under committer.mu.
func (s *logSet) current() *logFile { return s.mu.current }

// fits reports whether the current log has space for a record. Called under committer.mu.
func (s *logSet) fits(recordBytes int) bool {
	return s.mu.current != nil && s.mu.current.writer.Fits(recordBytes)
}

// failed reports whether a log has failed and its writes are not in tables. Called under
// committer.mu.
func (s *logSet) failed() bool { return s.mu.failure != nil }

// add adds a log that existed when the store was opened.
func (s *logSet) add(log *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.all = append(s.mu.all, log)
}

// begin creates the current log. Called under committer.mu.
func (s *logSet) begin(path string, number uint64, capacity int64) error {
	writer, err := wal.Create(path, number, &wal.Options{FS: s.env.FS, Capacity: capacity, Owner: s.env.Store[:]})
	if err != nil {
		return errors.Wrap(err, "lsm: create a log")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = &logFile{number: number, path: path, writer: writer}
	s.mu.all = append(s.mu.all, s.mu.current)
	return nil
}

// endCurrent makes the next write begin a log. Called under committer.mu.
func (s *logSet) endCurrent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = nil
}

// fail abandons the current logs, and reports whether there was no failure before. next
// is the number of the next log. Called under committer.mu.
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
// reports whether this resolves a failure. Called under committer.mu.
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
func (s *logSet) close() error {
	all, _, _ := s.list()
	return s.closeFiles(all)
}

// closeFiles closes logs that are not written any more.
func (s *logSet) closeFiles(logs []*logFile) (err error) {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	for _, log := range logs {
		err = errors.CombineErrors(err, log.close())
	}
	return err
}

// sync makes all writes in the logs durable. It syncs the logs oldest first, so that a
// sync mark in one proves that all older logs were durable.
func (s *logSet) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	logs, current, failure := s.list()
	if failure != nil {
		return failure
	}
	named := true
	for _, log := range logs {
		if log.writer == nil {
			return errOldLog
		}
		named = named && log.named
	}
	if !named {
		if err := s.env.FS.SyncDir(s.env.dir); err != nil {
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
