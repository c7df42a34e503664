package lsm

import (
	"context"
	"time"

	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/table"
)

// Flush writes all memtables to tables and waits until they are durable.
func (db *DB) Flush() error {
	through := db.commit.visible.Load()
	err := db.commit.exclusive(func() error {
		if m := db.writer.current(); m.Empty() || m.First() > through {
			return nil
		}
		return db.writer.rotate()
	})
	if err != nil {
		return err
	}
	return db.schedule.awaitFlush(through)
}

// WaitIdle returns when no flush, merge or cleanup runs or is due. The current memtable
// is not due. If a background task fails, WaitIdle returns its error; if ctx ends, the
// error of ctx.
func (db *DB) WaitIdle(ctx context.Context) error {
	if db.options.ReadOnly {
		if err := ctx.Err(); err != nil || db.schedule.current.Load() != nil {
			return err
		}
		return ErrClosed
	}
	return db.schedule.waitIdle(ctx)
}

// flushOldest writes the oldest memtable to a table. In the same pass it merges the
// tables that the rule would merge with it at once, if they are small.
func (db *DB) flushOldest() error {
	db.commit.advance(func() {
		if len(db.schedule.current.Load().memtables) == 1 && db.writer.due.Load() {
			db.writer.begin() // the current memtable must be flushed with its log, even if it is empty
		}
	})
	f, err := db.schedule.beginFlush()
	if f == nil {
		return err
	}
	defer db.schedule.endFlush()
	sorting := f.memtable.SortBytes()
	db.options.Budget.grow(sorting)
	defer db.options.Budget.grow(-sorting)
	start := time.Now()
	facts, fresh, err := db.writeFlush(f)
	if err != nil && len(f.inputs) > 0 && !db.schedule.isClosing() {
		// An input may be damaged, or the disk lacks space for the merge.
		db.env.Logger.Warn("a memtable is flushed without merging", "dir", db.env.dir, "error", err)
		db.schedule.dropInputs(f)
		facts, fresh, err = db.writeFlush(f)
	}
	if err != nil {
		return err
	}
	output, err := db.openOutput(facts, f.oldest, nil)
	if err != nil {
		return err
	}
	if err := db.installTable(output, f.memtable, f.inputs); err != nil {
		return err
	}
	db.noteFlush(f, facts, fresh, time.Since(start))
	return nil
}

// writeFlush writes the newest version of each key to a table. fresh is the number of
// its bytes that come from the memtable. Tombstones are dropped if nothing is older.
func (db *DB) writeFlush(f *flush) (facts table.Facts, fresh uint64, err error) {
	m := f.memtable
	if m.Empty() {
		return table.Facts{}, 0, nil
	}
	first, last := m.First(), m.Last()
	source := m.Source()
	var merged *kv.MergedSource
	if len(f.inputs) > 0 {
		if err := db.roomForMerge(f.inputs); err != nil {
			return table.Facts{}, 0, err
		}
		older, release, err := db.tableSources(f.inputs)
		if err != nil {
			return table.Facts{}, 0, err
		}
		defer release()
		least, _ := f.inputs[0].Bounds()
		shared := min(sharedBytes(f.inputs), kv.CommonPrefix(m.SharedKey(), least))
		merged = kv.NewMergedSource(append([]kv.Source{source}, older...), shared)
		source, first = merged, f.inputs[len(f.inputs)-1].Facts.FirstSequence
	}
	w, err := db.env.createTable(f.number, false)
	if err != nil {
		return table.Facts{}, 0, err
	}
	facts, err = db.writeTable(w, source, first, last, f.oldest, nil)
	if err != nil {
		return table.Facts{}, 0, err
	}
	fresh = facts.FileBytes
	if merged != nil {
		fresh = uint64(float64(fresh) * merged.NewestShare())
	}
	return facts, fresh, nil
}

// noteFlush counts a flush, and a merge if it had inputs.
func (db *DB) noteFlush(f *flush, facts table.Facts, fresh uint64, took time.Duration) {
	db.schedule.noteFlush(f, took)
	db.counters.flushes.Add(1)
	db.counters.flushBytes.Add(fresh)
	if len(f.inputs) > 0 {
		db.counters.merges.Add(1)
		db.counters.mergeBytes.Add(facts.FileBytes - fresh)
	}
	db.env.Logger.Debug("flushed a memtable", "table", f.number, "merged", len(f.inputs),
		"entries", facts.Entries, "bytes", facts.FileBytes, "took", took)
}
