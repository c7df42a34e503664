package lsm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// mergeStepBytes is the number of bytes that a merge writes before it checks for other
// work.
const mergeStepBytes = 1 << 20

// lastingUnits is the minimum size in memtables of a long-lived table: it
// is merged again only after as much has been written.
const lastingUnits = 16

// units returns the sizes of tables in memtables.
func (db *DB) units(tables []*table) []uint64 {
	units := make([]uint64, len(tables))
	for i, t := range tables {
		units[i] = tableUnits(t.facts.cost(), uint64(db.memtableBytes()))
	}
	return units
}

// mergeDue reports whether the rule requires a merge. Called under mu.
func (db *DB) mergeDue() bool {
	inputs, _ := db.dueMerge(nil)
	return len(inputs) > 0
}

// dueMerge returns the tables of the due merge, and whether no table is older. Inputs
// of the current flush are excluded. If a merge of the tables underWay is running, it
// considers only newer tables with a smaller total size. Called under mu.
func (db *DB) dueMerge(underWay []*table) (inputs []*table, oldest bool) {
	tables := db.current.Load().tables
	end, limit := len(tables), uint64(noLimit)
	if underWay != nil {
		end, limit = slices.Index(tables, underWay[0]), sumUnits(db.units(underWay))
	}
	claimed := 0
	if f := db.mu.activeFlush; f != nil {
		claimed = len(f.inputs)
	}
	free := tables[claimed:end]
	first, behind := db.options.MergeRule.plan(db.units(free), limit)
	return free[first:behind], underWay == nil && behind == len(free)
}

// mergeNewer runs the merges that dueMerge returns.
//
// Merges run one at a time, but a large merge pauses for smaller ones that become due:
// so flushes continue during a large merge, and the number of tables stays as the rule
// requires.
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

// tableSources opens tables for a merge; release closes them.
func (db *DB) tableSources(inputs []*table) (sources []entrySource, release func(), err error) {
	var readers []*tableReader
	memory := int64(0) // maximum size of the output's filter and index
	release = func() {
		db.options.Budget.merge(-memory)
		for _, r := range readers {
			r.close()
		}
	}
	for _, t := range inputs {
		// A separate mapping with read-ahead; its blocks are verified again.
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

// merge is a merge in progress. It does not reference a view, which would retain
// memtables, too: a merge reads through its own mappings, and no other goroutine
// removes its inputs from the list.
type merge struct {
	inputs []*table // newest first
	number uint64   // of the output table
	bytes  uint64   // of the inputs' keys and values
	done   atomic.Uint64
	begun  time.Time
}

// beginMerge registers the due merge, if any.
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

// roomForMerge checks before a merge that the disk has space for its output, assuming
// distinct keys, plus the log and table of a memtable: writes have priority over
// merges.
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

// sharedBytes returns the length of the prefix common to all keys of the tables.
func sharedBytes(tables []*table) int {
	first := tables[0].minKey
	shared := len(first)
	for _, t := range tables {
		shared = min(shared, commonPrefix(first, t.minKey), commonPrefix(first, t.maxKey))
	}
	return shared
}

// fillTable writes the entries of a source, optionally without tombstones. At every
// mergeStepBytes it checks whether the DB is closing and calls pause, if not nil.
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
