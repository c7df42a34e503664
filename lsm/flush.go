package lsm

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

const (
	// A flush or merge that failed is tried again after a while, doubled each time.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Flush writes what is in memory to a table and waits until that is durable.
func (db *DB) Flush() error {
	if db.options.ReadOnly {
		return db.readOnlyError()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.closing {
		return ErrClosed
	}
	target := db.current.Load().memtables[0]
	if target.empty() {
		// What is before it may still be waiting.
		target = nil
	}
	through := db.visible.Load()
	for {
		memtables := db.current.Load().memtables
		if memtables[0] == target {
			if err := db.rotate(); err != nil {
				return err
			}
		} else if oldest := memtables[len(memtables)-1]; oldest.empty() || oldest.firstSequence.Load() > through {
			return nil
		} else if err := db.mu.flushError; err != nil {
			return err
		} else {
			db.mu.changed.Wait()
		}
		if db.mu.closing {
			return ErrClosed
		}
	}
}

// WaitIdle returns when nothing is flushed, merged or cleaned up and nothing is
// due to be.
// What the memtable being filled holds is not due. If the background fails, it
// returns that error; if ctx ends, that of ctx.
func (db *DB) WaitIdle(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.mu.changed.Broadcast()
	})
	defer stop()
	db.mu.Lock()
	defer db.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := db.current.Load()
		if v == nil || db.mu.closing {
			return ErrClosed
		}
		if db.options.ReadOnly {
			return nil
		}
		if err := errors.CombineErrors(db.mu.flushError, db.mu.mergeError); err != nil {
			return err
		}
		begin, end := db.options.MergeRule.plan(db.units(v.tables), noLimit)
		busy := db.mu.flushing || db.mu.merging || db.mu.cleaning
		if !db.memtableDue() && begin == end && !busy && !db.cleanupDue() {
			return nil
		}
		db.mu.changed.Wait()
	}
}

// worker runs a background task for as long as the DB is open. due tells under
// mu whether there is something to do; busy and failed are told how it goes.
func (db *DB) worker(name string, due func() bool, busy *bool, failed *error, run func() error) {
	defer db.background.Done()
	retry := firstRetry
	for {
		db.mu.Lock()
		for !due() && !db.mu.closing {
			db.mu.changed.Wait()
		}
		if db.mu.closing {
			db.mu.Unlock()
			return
		}
		*busy = true
		db.mu.Unlock()

		err := run()

		db.mu.Lock()
		*busy = false
		if errors.Is(err, errClosing) {
			err = nil
		}
		*failed = err
		db.mu.changed.Broadcast()
		db.mu.Unlock()
		if err == nil {
			retry = firstRetry
			continue
		}
		if errors.Is(err, vfs.ErrNoSpace) {
			db.dropSpare() // what it takes may be all that is missing
		}
		db.counters.failures.Add(1)
		db.env.logger.Error("a "+name+" failed and will be tried again",
			"dir", db.env.dir, "error", err, "after", retry)
		select {
		case <-db.closing:
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

// errClosing ends a flush or merge that Close does not wait for.
var errClosing = errors.New("lsm: closing")

func (db *DB) isClosing() bool {
	select {
	case <-db.closing:
		return true
	default:
		return false
	}
}

// memtableDue reports whether a memtable has to become a table: it waits for that, its
// log failed, or it takes too much memory. Called under mu.
func (db *DB) memtableDue() bool {
	return len(db.current.Load().memtables) > 1 || db.mu.logError != nil || db.oversized()
}

// flushDue reports whether a memtable has to become a table and there is room for
// one. Called under mu.
func (db *DB) flushDue() bool {
	return db.memtableDue() &&
		(db.options.MergeRule.excess(db.units(db.current.Load().tables)) < maxExcess || db.mu.mergeError != nil)
}

// takeNumber returns the number for a new file. Called under mu.
func (db *DB) takeNumber() uint64 {
	db.mu.nextNumber++
	return db.mu.nextNumber - 1
}

// installTable puts a table that is written and durable in the place of a
// memtable or of merged tables: in the manifest, then in the view. A table
// without entries stands for nothing.
//
// The steps, and what a crash leaves: the directory is synced, so that the table
// is there before it is named; until the manifest is renamed the store is the
// old one and the table an orphan; from then on it is the new one, and what was
// replaced is an orphan. Open removes orphans.
func (db *DB) installTable(facts tableFacts, flushed *memtable, merged []*table) error {
	db.install.Lock()
	defer db.install.Unlock()

	var output *table
	if facts.entries > 0 {
		var err error
		if output, err = db.openOutput(facts); err != nil {
			return err
		}
		output.ref()
		defer output.unref()
	}
	v := db.current.Load() // its tables change under install only
	tables := replaceTables(v.tables, output, merged)

	db.mu.Lock()
	next := db.describe(tables, flushed)
	db.mu.Unlock()
	if err := next.write(db.env.fs, db.env.path(manifestName)); err != nil {
		db.dropUnlessNamed(facts)
		return err
	}

	db.mu.Lock()
	memtables := db.current.Load().memtables
	if flushed != nil {
		memtables = memtables[:len(memtables)-1]
		db.mu.flushInputs = nil // they leave the list with this view
	}
	old := db.setView(memtables, tables)
	left := &db.mu.leftovers
	left.logs = append(left.logs, db.cutLogs(next.firstLog)...)
	for _, t := range merged {
		left.paths = append(left.paths, t.path)
	}
	left.filters = true
	if db.mu.logError != nil && next.firstLog >= db.mu.goodLog {
		db.mu.logError = nil
		db.env.logger.Info("writes go on in a new log", "dir", db.env.dir)
	}
	db.mu.Unlock()

	// The pages of tables that are gone have to be dropped before their mappings.
	db.updateFilters()
	old.retire()
	return nil
}

// openOutput makes a table that was just written ready to be read. What cannot
// be read back is not installed.
func (db *DB) openOutput(facts tableFacts) (*table, error) {
	path := db.env.path(tableName(facts.number))
	err := db.env.fs.SyncDir(db.env.dir)
	var t *table
	if err == nil {
		t, err = openTable(&db.env, facts)
	}
	if err != nil {
		_ = db.env.fs.Remove(path)
		return nil, errors.Wrap(err, "lsm: open a new table")
	}
	// Most of what was written is still in memory. Look-ups find it mapped then, and do
	// not wait for the kernel page by page.
	_ = t.mapping.Advise(vfs.AdvisePresent) // they can do without
	return t, nil
}

// replaceTables returns tables with output in the place of merged, a run of
// them, or before all if merged is empty. A nil output takes no place.
func replaceTables(tables []*table, output *table, merged []*table) []*table {
	at := 0
	if len(merged) > 0 {
		at = slices.Index(tables, merged[0])
	}
	result := slices.Clone(tables[:at])
	if output != nil {
		result = append(result, output)
	}
	return append(result, tables[at+len(merged):]...)
}

// describe returns the manifest of the store with the given tables and without
// a memtable that has become one of them. Called under mu.
func (db *DB) describe(tables []*table, flushed *memtable) manifest {
	m := manifest{id: db.env.id, nextNumber: db.mu.nextNumber, firstLog: db.mu.nextNumber}
	for _, t := range tables {
		m.tables = append(m.tables, t.facts)
	}
	memtables := db.current.Load().memtables
	m.lastSequence = db.visible.Load()
	for _, memory := range memtables {
		if memory == flushed {
			continue
		}
		if memory.log != 0 {
			m.firstLog = min(m.firstLog, memory.log)
		}
		if !memory.empty() {
			m.lastSequence = min(m.lastSequence, memory.firstSequence.Load()-1)
		}
	}
	return m
}

// cutLogs takes the logs that nothing in memory needs off the list. Called
// under mu.
func (db *DB) cutLogs(firstLog uint64) (obsolete []*logFile) {
	logs := db.mu.logs
	n := 0
	for n < len(logs) && logs[n].number < firstLog {
		n++
	}
	db.mu.logs = slices.Clone(logs[n:])
	return logs[:n]
}

// dropUnlessNamed removes a table after its manifest could not be written. If
// the manifest took its place all the same, or cannot be read, the table stays.
func (db *DB) dropUnlessNamed(facts tableFacts) {
	m, err := readManifest(db.env.fs, db.env.path(manifestName))
	if err == nil && !slices.Contains(m.tables, facts) && facts.entries > 0 {
		_ = db.env.fs.Remove(db.env.path(tableName(facts.number)))
	}
}
