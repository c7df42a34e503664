package lsm

import (
	"slices"
	"time"

	"github.com/cockroachdb/errors"
)

// maxFusedUnits is the maximum size in memtables of a flush that also merges. When the
// rule would merge the new table at once, a combined pass saves writing and reading it:
// three of eight flushes begin a merge of at most this size. A larger one would delay
// the next flush, and so writers, for too long.
const maxFusedUnits = 4

// flush is a flush in progress. inputs and units change only under DB.mu.
type flush struct {
	memtable *memtable
	number   uint64   // of the table
	inputs   []*table // newest tables, merged with the memtable
	units    uint64   // size of the output in memtables
	oldest   bool     // no table is older than the inputs
}

// flushOldest writes the oldest memtable to a table. In the same pass it merges the
// tables that the rule would merge with it at once, if they are small.
func (db *DB) flushOldest() error {
	f, err := db.beginFlush()
	if f == nil {
		return err
	}
	defer db.endFlush()
	sorting := f.memtable.sortBytes()
	db.options.Budget.grow(sorting)
	defer db.options.Budget.grow(-sorting)
	start := time.Now()
	facts, fresh, err := db.writeFlush(f)
	if err != nil && len(f.inputs) > 0 && !db.isClosing() {
		// An input may be damaged, or the disk lacks space for the merge.
		db.env.logger.Warn("a memtable is flushed without merging", "dir", db.env.dir, "error", err)
		db.dropInputs(f)
		facts, fresh, err = db.writeFlush(f)
	}
	if err != nil {
		return err
	}
	if err := db.installTable(facts, f.memtable, f.inputs); err != nil {
		return err
	}
	db.noteFlush(f, facts, fresh, time.Since(start))
	return nil
}

// beginFlush chooses what to flush; nil if nothing is due.
func (db *DB) beginFlush() (*flush, error) {
	db.commit.advance(func() {
		if len(db.current.Load().memtables) == 1 && db.writer.due.Load() {
			db.writer.begin() // the current memtable must be flushed with its log, even if it is empty
		}
	})
	db.mu.Lock()
	defer db.mu.Unlock()
	v := db.current.Load()
	if len(v.memtables) == 1 {
		return nil, nil
	}
	if err := db.mu.merge.err; err != nil && db.options.MergeRule.excess(db.units(v.tables)) >= maxExcess {
		return nil, errors.Wrapf(err, "lsm: %d tables and none can be merged", len(v.tables))
	}
	f := &flush{memtable: v.memtables[len(v.memtables)-1], number: db.takeNumber()}
	f.inputs = db.fused(v.tables, f.memtable)
	f.units = 1 + sumUnits(db.units(f.inputs))
	f.oldest = len(f.inputs) == len(v.tables)
	db.mu.activeFlush = f
	return f, nil
}

// fused returns the tables that the rule would merge at once with the memtable's table,
// if they are small and no other merge uses them. Called under mu.
func (db *DB) fused(tables []*table, m *memtable) []*table {
	if m.empty() || m.used() > db.memtableBytes() || db.mu.merge.err != nil {
		return nil
	}
	limit := uint64(noLimit)
	for _, other := range db.mu.merges {
		if i := slices.Index(tables, other.inputs[0]); i >= 0 { // else it has completed
			tables = tables[:i]
			limit = min(limit, sumUnits(db.units(other.inputs)))
		}
	}
	units := append([]uint64{1}, db.units(tables)...)
	begin, end := db.options.MergeRule.plan(units, limit)
	if begin == 0 && end > 1 && sumUnits(units[:end]) <= maxFusedUnits {
		return tables[:end-1]
	}
	return nil
}

// dropInputs restricts the flush to its memtable.
func (db *DB) dropInputs(f *flush) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f.inputs, f.units, f.number = nil, 1, db.takeNumber()
	f.oldest = len(db.current.Load().tables) == 0
}

// endFlush releases the input tables for merges.
func (db *DB) endFlush() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.activeFlush = nil
	db.mu.changed.Broadcast()
}

// writeFlush writes the newest version of each key to a table. fresh is the number of
// its bytes that come from the memtable. Tombstones are dropped if nothing is older.
func (db *DB) writeFlush(f *flush) (facts tableFacts, fresh uint64, err error) {
	m := f.memtable
	if m.empty() {
		return tableFacts{}, 0, nil
	}
	first, last := m.firstSequence.Load(), m.lastSequence
	var source entrySource = m.flushSource()
	var merged *mergedSource
	if len(f.inputs) > 0 {
		if err := db.roomForMerge(f.inputs); err != nil {
			return tableFacts{}, 0, err
		}
		older, release, err := db.tableSources(f.inputs)
		if err != nil {
			return tableFacts{}, 0, err
		}
		defer release()
		shared := min(sharedBytes(f.inputs), commonPrefix(m.versions.sharedKey(), f.inputs[0].minKey))
		merged = newMergedSource(append([]entrySource{source}, older...), shared)
		source, first = merged, f.inputs[len(f.inputs)-1].facts.firstSequence
	}
	w, err := newTableWriter(&db.env, f.number, false)
	if err != nil {
		return tableFacts{}, 0, err
	}
	if err = db.fillTable(w, source, f.oldest, nil); err == nil {
		facts, err = w.finish(first, last)
	}
	if err != nil {
		w.abandon()
		return tableFacts{}, 0, err
	}
	fresh = facts.fileBytes
	if merged != nil {
		fresh = uint64(float64(fresh) * merged.newestShare())
	}
	return facts, fresh, nil
}

// noteFlush counts a flush, and a merge if it had inputs.
func (db *DB) noteFlush(f *flush, facts tableFacts, fresh uint64, took time.Duration) {
	db.mu.Lock()
	db.mu.flushTook = expectFlush(db.mu.flushTook, took/time.Duration(f.units))
	db.mu.Unlock()
	db.counters.flushes.Add(1)
	db.counters.flushBytes.Add(fresh)
	if len(f.inputs) > 0 {
		db.counters.merges.Add(1)
		db.counters.mergeBytes.Add(facts.fileBytes - fresh)
	}
	db.env.logger.Debug("flushed a memtable", "table", f.number, "merged", len(f.inputs),
		"entries", facts.entries, "bytes", facts.fileBytes, "took", took)
}
