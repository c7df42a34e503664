package lsm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// mergeStepBytes is how much of a table is written between two looks at what
// else there is to do.
const mergeStepBytes = 1 << 20

// units returns the sizes of tables in memtables.
func (db *DB) units(tables []*table) []uint64 {
	units := make([]uint64, len(tables))
	for i, t := range tables {
		units[i] = tableUnits(t.facts.cost(), uint64(db.memtableBytes()))
	}
	return units
}

// mergeDue tells whether the rule wants a merge. Called under mu.
func (db *DB) mergeDue() bool {
	begin, end := db.options.MergeRule.plan(db.units(db.current.Load().tables), noLimit)
	return begin != end
}

// mergeNewer does the merges that are due among all tables; or, beside a merge
// that is under way, those that are smaller among the tables newer than its inputs.
//
// There is one merge at a time on the disk, but a large one pauses for the
// small ones that become due meanwhile: so flushes go on during a large merge,
// and the number of tables stays what the rule makes it.
func (db *DB) mergeNewer(underWay []*table) error {
	limit := uint64(noLimit)
	if underWay != nil {
		limit = 0
		for _, units := range db.units(underWay) {
			limit += units
		}
	}
	for {
		v, err := db.acquire()
		if err != nil {
			return errClosing
		}
		// Not held through the merge: that would keep memtables. A merge reads
		// through mappings of its own, and nobody else removes tables.
		tables, all := v.tables, len(v.tables)
		v.unref()
		if underWay != nil {
			tables = tables[:slices.Index(tables, underWay[0])]
		}
		begin, end := db.options.MergeRule.plan(db.units(tables), limit)
		if begin == end {
			return nil
		}
		if err := db.merge(tables[begin:end], end == all); err != nil {
			return err
		}
	}
}

// merge makes one table of a run of tables, in one pass. Tombstones go if
// nothing is older than the run.
func (db *DB) merge(inputs []*table, oldest bool) error {
	start := time.Now()
	if err := db.roomForMerge(inputs); err != nil {
		return err
	}
	sources := make([]internalIterator, len(inputs))
	memory := int64(0) // of the filter and index of the output, at most
	for i, t := range inputs {
		// A mapping of its own, to be read in order; its blocks are verified anew.
		r, err := openTableReader(&db.env, t.facts, vfs.AdviseSequential)
		if err != nil {
			return err
		}
		defer r.close()
		sources[i] = r.iterator()
		memory += int64(r.footer.filter.length + r.footer.index.length)
	}
	db.options.Budget.merge(memory)
	defer db.options.Budget.merge(-memory)
	number, progress := db.beginMerge(inputs)
	defer db.endMerge(progress)
	w, err := newTableWriter(&db.env, number)
	if err != nil {
		return err
	}
	var facts tableFacts
	err = db.fillTable(w, newMergingIterator(sources), oldest, func() error {
		progress.done.Store(w.added())
		return db.mergeNewer(inputs)
	})
	if err == nil {
		facts, err = w.finish(inputs[len(inputs)-1].facts.firstSequence, inputs[0].facts.lastSequence)
	}
	if err != nil {
		w.abandon()
		return err
	}
	if err := db.installTable(facts, nil, inputs); err != nil {
		return err
	}
	db.counters.merges.Add(1)
	db.counters.mergeBytes.Add(facts.fileBytes)
	db.env.logger.Debug("merged tables", "tables", len(inputs), "into", number,
		"entries", facts.entries, "bytes", facts.fileBytes, "took", time.Since(start))
	return nil
}

// mergeProgress is a merge under way.
type mergeProgress struct {
	inputs []uint64 // their numbers, newest first
	bytes  uint64   // of keys and values in them
	done   atomic.Uint64
	begun  time.Time
}

// beginMerge announces a merge, and returns the number of its table.
func (db *DB) beginMerge(inputs []*table) (number uint64, p *mergeProgress) {
	p = &mergeProgress{begun: time.Now()}
	for _, t := range inputs {
		p.inputs = append(p.inputs, t.facts.number)
		p.bytes += t.facts.keyBytes + t.facts.valueBytes
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.merges = append(db.mu.merges, p)
	return db.takeNumber(), p
}

func (db *DB) endMerge(p *mergeProgress) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.merges = slices.DeleteFunc(db.mu.merges, func(other *mergeProgress) bool { return other == p })
}

// roomForMerge makes sure, before anything is written, that the disk has room for
// a merge of tables whose keys all differ, and beside it for the log and the table of
// a memtable: writes are worth more than a merge.
func (db *DB) roomForMerge(inputs []*table) error {
	need := 2 * db.memtableBytes()
	for _, t := range inputs {
		need += int64(t.facts.fileBytes)
	}
	free, err := db.env.fs.FreeBytes(db.env.dir)
	if err != nil {
		return errors.Wrap(err, "lsm: room for a merge")
	}
	if free < need {
		return errors.Wrapf(vfs.ErrNoSpace, "lsm: a merge of %d tables needs %d bytes in %s, %d are free", len(inputs), need, db.env.dir, free)
	}
	return nil
}

// fillTable writes what a source holds, without tombstones if so asked. Now and
// then it calls pause, if that is not nil, and looks whether the DB closes. The
// source's keys and values have to stay where they are until the table is finished
// or abandoned.
func (db *DB) fillTable(w *tableWriter, it entrySource, dropTombstones bool, pause func() error) error {
	found, begun := false, false
	for {
		var err error
		until := w.added() + mergeStepBytes
		fault := vfs.Guard(func() {
			if !begun {
				found, begun = it.first(), true
			}
			for ; found && err == nil && w.added() < until; found = it.next() {
				if !it.tombstone() || !dropTombstones {
					err = w.add(entry{it.key(), it.value(), it.tombstone()})
				}
			}
			if err == nil {
				err = it.err()
			}
		})
		switch {
		case fault != nil:
			return errors.Wrap(fault, "lsm: read a table")
		case err != nil || !found:
			return err
		case db.isClosing():
			return errClosing
		case pause == nil:
			continue
		}
		if err := pause(); err != nil {
			return err
		}
	}
}
