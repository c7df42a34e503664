package lsm

import (
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/table"
)

// mergeStepBytes is the number of bytes that a merge writes before it checks for other
// work.
const mergeStepBytes = 1 << 20

// lastingUnits is the minimum size in memtables of a long-lived table: it
// is merged again only after as much has been written.
const lastingUnits = 16

// lasting reports whether a table of a size in memtables is written as a long-lived one,
// with larger buffers if the budget has memory for them.
func (db *DB) lasting(units uint64) bool {
	return units >= lastingUnits && db.options.Budget.mergesFit(table.LastingBufferBytes)
}

// mergeNewer runs the merges that dueMerge returns.
//
// Merges run one at a time, but a large merge pauses for smaller ones that become due:
// so flushes continue during a large merge, and the number of tables stays as the rule
// requires.
func (db *DB) mergeNewer(underWay []*table.Reader) error {
	for {
		m, oldest := db.schedule.beginMerge(underWay)
		if m == nil {
			return nil
		}
		err := db.merge(m, oldest)
		db.schedule.endMerge(m)
		if err != nil {
			return err
		}
	}
}

// merge merges consecutive tables into one. Tombstones are dropped if oldest is set.
func (db *DB) merge(m *merge, oldest bool) error {
	start, inputs := time.Now(), m.inputs
	if err := db.roomForMerge(inputs); err != nil {
		return err
	}
	sources, release, err := db.tableSources(inputs)
	if err != nil {
		return err
	}
	defer release()
	source := kv.NewMergedSource(sources, sharedBytes(inputs))
	w, err := db.env.createTable(m.number, db.lasting(sumUnits(db.schedule.units(inputs))))
	if err != nil {
		return err
	}
	first, last := inputs[len(inputs)-1].Facts.FirstSequence, inputs[0].Facts.LastSequence
	var limited uint64
	facts, err := db.writeTable(w, source, first, last, oldest, func() error {
		m.done.Store(w.Added())
		if err := db.mergeNewer(inputs); err != nil {
			return err
		}
		written := w.Written() - limited
		limited += written
		return db.limitMerge(written, inputs)
	})
	if err != nil {
		return err
	}
	output, err := db.openOutput(facts, oldest, func() error { return db.mergeNewer(inputs) })
	if err != nil {
		return err
	}
	if err := db.installTable(output, nil, inputs); err != nil {
		return err
	}
	db.counters.merges.Add(1)
	db.counters.mergeBytes.Add(facts.FileBytes)
	db.env.Logger.Debug("merged tables", "tables", len(inputs), "into", m.number,
		"entries", facts.Entries, "bytes", facts.FileBytes, "took", time.Since(start))
	return nil
}

// tableSources opens tables for a merge; release closes them.
func (db *DB) tableSources(inputs []*table.Reader) (sources []kv.Source, release func(), err error) {
	var opened []*table.Source
	release = func() {
		for _, s := range opened {
			s.Close()
		}
	}
	for _, t := range inputs {
		s, err := db.env.openSource(t.Facts)
		if err != nil {
			release()
			return nil, nil, err
		}
		opened, sources = append(opened, s), append(sources, s)
	}
	return sources, release, nil
}

// roomForMerge checks before a merge that the disk has space for its output, assuming
// distinct keys, and its spool, plus the log and table of a memtable: writes have priority
// over merges.
func (db *DB) roomForMerge(inputs []*table.Reader) error {
	need := 2 * db.memtableBytes()
	for _, t := range inputs {
		need += int64(t.Facts.FileBytes + t.SpoolBytes())
	}
	free, err := db.env.FS.Free(db.env.dir)
	if err != nil {
		return errors.Wrap(err, "lsm: room for a merge")
	}
	if free.Bytes < need {
		return errors.Wrapf(vfs.ErrNoSpace, "lsm: a merge of %d tables needs %d bytes in %s, %d are free", len(inputs), need, db.env.dir, free.Bytes)
	}
	return nil
}

// sharedBytes returns the length of the prefix common to all keys of the tables.
func sharedBytes(tables []*table.Reader) int {
	first, _ := tables[0].Bounds()
	shared := len(first)
	for _, t := range tables {
		minKey, maxKey := t.Bounds()
		shared = min(shared, kv.CommonPrefix(first, minKey), kv.CommonPrefix(first, maxKey))
	}
	return shared
}

// deleteObsolete replaces obsolete entries by tombstones.
func deleteObsolete(entries []kv.Entry, obsolete func(key, value []byte) bool) {
	for i := range entries {
		if e := &entries[i]; !e.Tombstone && obsolete(e.Key, e.Value) {
			e.Tombstone, e.Value = true, nil
		}
	}
}

// writeTable writes the entries of a source to a table, which has the writes of a range of
// sequence numbers. Tombstones are omitted if drop is set. For pause see fillTable.
func (db *DB) writeTable(w *table.Writer, source kv.Source, first, last uint64, drop bool, pause func() error) (facts table.Facts, err error) {
	if err = db.fillTable(w, source, drop, pause); err == nil {
		facts, err = w.Finish(first, last)
	}
	if err != nil {
		w.Abandon()
	}
	return facts, err
}

// fillTable writes the entries of a source, optionally without tombstones. At every
// mergeStepBytes it checks whether the DB is closing and calls pause, if not nil.
func (db *DB) fillTable(w *table.Writer, source kv.Source, dropTombstones bool, pause func() error) error {
	var batch []kv.Entry
	var obsolete func(key, value []byte) bool
	if db.options.Obsolete != nil {
		obsolete = db.options.Obsolete()
	}
	for {
		var err error
		for until := w.Added() + mergeStepBytes; w.Added() < until; {
			if batch, err = source.Next(batch[:0]); err != nil || len(batch) == 0 {
				return err
			}
			if obsolete != nil {
				deleteObsolete(batch, obsolete)
			}
			if err = w.Add(batch, dropTombstones); err != nil {
				return err
			}
		}
		if err := db.betweenSteps(pause); err != nil {
			return err
		}
	}
}

// betweenSteps checks whether the DB is closing and calls pause, if not nil.
func (db *DB) betweenSteps(pause func() error) error {
	switch {
	case db.schedule.isClosing():
		return errClosing
	case pause == nil:
		return nil
	}
	return pause()
}

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
