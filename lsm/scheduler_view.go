package lsm

import (
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// setView replaces the current view and returns the old one, which the caller must
// retire outside mu. Called under mu.
func (s *scheduler) setView(memtables []*memtable.Memtable, tables []*table.Reader) (old *view) {
	old = s.current.Swap(newView(memtables, tables))
	s.mu.changed.Broadcast()
	return old
}

// replaceMemtables replaces the list of memtables by the result of fn, which must have
// all memtables of the list except an empty one. Called under committer.mu.
func (s *scheduler) replaceMemtables(fn func(memtables []*memtable.Memtable) []*memtable.Memtable) {
	s.mu.Lock()
	v := s.current.Load()
	old := s.setView(fn(v.memtables), v.tables)
	s.mu.Unlock()
	old.retire()
}

// publish replaces the tables of the view and returns the old view. If flushed is set, it
// also removes the oldest memtable.
func (s *scheduler) publish(tables []*table.Reader, flushed bool) (old *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	memtables := s.current.Load().memtables
	if flushed {
		memtables = memtables[:len(memtables)-1]
		s.mu.activeFlush = nil // its inputs are no longer in the list of tables
	}
	return s.setView(memtables, tables)
}

// takeNumber returns the number of a new file. Called under mu.
func (s *scheduler) takeNumber() uint64 {
	s.mu.nextNumber++
	return s.mu.nextNumber - 1
}

// beginLog returns the number of a new log, and notes the log in its memtable, so that a
// manifest written from now on keeps it.
func (s *scheduler) beginLog(m *memtable.Memtable) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := s.takeNumber()
	if m.Log == 0 {
		m.Log = number
	}
	return number
}

// returnNumber takes back a number that no file has, unless a higher one is in use.
func (s *scheduler) returnNumber(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.nextNumber == number+1 {
		s.mu.nextNumber = number
	}
}

// peekNumber returns the number of the next file.
func (s *scheduler) peekNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nextNumber
}

// flushError returns the error of the last flush.
func (s *scheduler) flushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.flush.err
}
