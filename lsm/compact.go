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

// lastingUnits is the size in memtables from which on a table lasts: it is merged again
// when as much has been written once more.
const lastingUnits = 16

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
	inputs, _ := db.dueMerge(nil)
	return len(inputs) > 0
}

// dueMerge returns the tables of the merge that is due, and whether nothing is older:
// of all that a flush under way does not take; beside a merge that is under
// way, of those that are newer than its inputs, and smaller together. Called under mu.
func (db *DB) dueMerge(underWay []*table) (inputs []*table, oldest bool) {
	tables := db.current.Load().tables
	end, limit := len(tables), uint64(noLimit)
	if underWay != nil {
		end, limit = slices.Index(tables, underWay[0]), sumUnits(db.units(underWay))
	}
	free := tables[len(db.mu.flushInputs):end]
	first, behind := db.options.MergeRule.plan(db.units(free), limit)
	return free[first:behind], underWay == nil && behind == len(free)
}

// mergeNewer does the merges that dueMerge tells of.
//
// There is one merge at a time on the disk, but a large one pauses for the
// small ones that become due meanwhile: so flushes go on during a large merge,
// and the number of tables stays what the rule makes it.
func (db *DB) mergeNewer(underWay []*table) error {
	for {
		m, oldest := db.beginMerge(underWay)
		if m == nil {
			return nil
		}
		err := db.merge(m, oldest)
		db.endMerge(m)
		if err != nil {
			return err
		}
	}
}

// merge makes one table of a run of tables, in one pass. Tombstones go if
// nothing is older than the run.
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
	source := newMergedSource(sources, sharedBytes(inputs))
	w, err := newTableWriter(&db.env, m.number, sumUnits(db.units(inputs)) >= lastingUnits)
	if err != nil {
		return err
	}
	var facts tableFacts
	err = db.fillTable(w, source, oldest, func() error {
		m.done.Store(w.added())
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
	db.env.logger.Debug("merged tables", "tables", len(inputs), "into", m.number,
		"entries", facts.entries, "bytes", facts.fileBytes, "took", time.Since(start))
	return nil
}

// tableSources returns what tables hold, and what is to be called when nobody
// reads it any more.
func (db *DB) tableSources(inputs []*table) (sources []entrySource, release func(), err error) {
	var readers []*tableReader
	memory := int64(0) // of the filter and index of the output, at most
	release = func() {
		db.options.Budget.merge(-memory)
		for _, r := range readers {
			r.close()
		}
	}
	for _, t := range inputs {
		// A mapping of its own, to be read in order; its blocks are verified anew.
		r, err := openTableReader(&db.env, t.facts, vfs.AdviseSequential)
		if err != nil {
			release()
			return nil, nil, err
		}
		readers, sources = append(readers, r), append(sources, &tableSource{r: r})
		bytes := int64(r.footer.filter.length + r.footer.index.length)
		db.options.Budget.merge(bytes)
		memory += bytes
	}
	return sources, release, nil
}

// merge is a merge under way. Its inputs are not held, as the view that lists them
// would keep memtables, too: a merge reads through mappings of its own, and nobody
// else takes them off the list.
type merge struct {
	inputs []*table // newest first
	number uint64   // of the table they become
	bytes  uint64   // of keys and values in them
	done   atomic.Uint64
	begun  time.Time
}

// beginMerge announces the merge that is due, if there is one.
func (db *DB) beginMerge(underWay []*table) (m *merge, oldest bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	inputs, oldest := db.dueMerge(underWay)
	if len(inputs) == 0 {
		return nil, false
	}
	m = &merge{inputs: inputs, number: db.takeNumber(), begun: time.Now()}
	for _, t := range inputs {
		m.bytes += t.facts.keyBytes + t.facts.valueBytes
	}
	db.mu.merges = append(db.mu.merges, m)
	return m, oldest
}

func (db *DB) endMerge(m *merge) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.merges = slices.DeleteFunc(db.mu.merges, func(other *merge) bool { return other == m })
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

// sharedBytes is how many bytes all keys of tables begin with.
func sharedBytes(tables []*table) int {
	first := tables[0].minKey
	shared := len(first)
	for _, t := range tables {
		shared = min(shared, commonPrefix(first, t.minKey), commonPrefix(first, t.maxKey))
	}
	return shared
}

// fillTable writes what a source holds, without tombstones if so asked. Now and
// then it calls pause, if that is not nil, and looks whether the DB closes.
func (db *DB) fillTable(w *tableWriter, source entrySource, dropTombstones bool, pause func() error) error {
	var batch []entry
	for {
		var err error
		for until := w.added() + mergeStepBytes; w.added() < until; {
			if batch, err = source.next(batch[:0]); err != nil || len(batch) == 0 {
				return err
			}
			for i := range batch {
				if e := &batch[i]; !e.tombstone || !dropTombstones {
					if err = w.add(e); err != nil {
						return err
					}
				}
			}
		}
		switch {
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
