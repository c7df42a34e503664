package lsm

import (
	"time"

	"docstore/lsm/internal/table"
)

// urgentExcess is the number of tables above the rule's number at which Options.MergeRate no
// longer limits merges: fewer than slowExcess, at which writers are slowed.
const urgentExcess = slowExcess * 3 / 4

// limitMerge waits after a merge of tables has written so many bytes, as Options.MergeRate
// requires. It runs the merges of newer tables that become due meanwhile.
func (db *DB) limitMerge(bytes uint64, tables []*table.Reader) error {
	limiter := db.options.MergeRate
	for limiter != nil && bytes > 0 && !db.schedule.mergesUrgent() {
		part := min(bytes, uint64(limiter.Burst()))
		bytes -= part
		reserved := limiter.ReserveN(time.Now(), int(part))
		until := time.Now().Add(reserved.Delay())
		for !db.schedule.pauseMerge(until, tables) {
			if err := db.mergeNewer(tables); err != nil {
				return err
			}
		}
		if time.Now().Before(until) { // merges have become urgent
			reserved.Cancel()
		}
	}
	return nil
}

// mergesUrgent reports whether so many tables wait for merges that they must not be limited.
func (s *scheduler) mergesUrgent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent()
}

// urgent is mergesUrgent, called under mu.
func (s *scheduler) urgent() bool {
	return s.mu.closing || s.rule.excess(s.units(s.current.Load().tables)) >= urgentExcess
}

// pauseMerge waits until a time, or until merges are urgent. It returns false if a merge of
// newer tables than those of the paused merge is due before.
func (s *scheduler) pauseMerge(until time.Time, tables []*table.Reader) bool {
	timer := time.AfterFunc(time.Until(until), s.wake)
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for time.Now().Before(until) && !s.urgent() {
		if newer, _ := s.dueMerge(tables); len(newer) > 0 {
			return false
		}
		s.mu.changed.Wait()
	}
	return true
}
