package lsm

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

const (
	// Delay before a failed flush or merge is retried, doubled each time.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Flush writes all memtables to tables and waits until they are durable.
func (db *DB) Flush() error {
	through := db.commit.visible.Load()
	err := db.commit.exclusive(func() error {
		if m := db.writer.current(); m.empty() || m.firstSequence.Load() > through {
			return nil
		}
		return db.writer.rotate()
	})
	if err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for !db.mu.closing {
		memtables := db.current.Load().memtables
		oldest := memtables[len(memtables)-1]
		if oldest.empty() || oldest.firstSequence.Load() > through {
			return nil
		}
		if err := db.mu.flush.err; err != nil {
			return err
		}
		db.mu.changed.Wait()
	}
	return ErrClosed
}

// WaitIdle returns when no flush, merge or cleanup runs or is due. The current memtable
// is not due. If a background task fails, WaitIdle returns its error; if ctx ends, the
// error of ctx.
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
		if err := errors.CombineErrors(db.mu.flush.err, db.mu.merge.err); err != nil {
			return err
		}
		begin, end := db.options.MergeRule.plan(db.units(v.tables), noLimit)
		busy := db.mu.flush.busy || db.mu.merge.busy || db.mu.cleanup.busy
		if !db.memtableDue() && begin == end && !busy && !db.obsolete.due() {
			return nil
		}
		db.mu.changed.Wait()
	}
}

// task is a kind of background work, which one goroutine runs.
type task struct {
	name string
	due  func() bool // reports whether there is work; called under DB.mu
	run  func() error

	// Guarded by DB.mu.
	busy bool
	err  error // of the last run
}

// startTasks starts the background work, which Close stops.
func (db *DB) startTasks() {
	db.running = true
	db.mu.flush = task{name: "flush", due: db.flushDue, run: db.flushOldest}
	db.mu.merge = task{name: "merge", due: db.mergeDue, run: func() error { return db.mergeNewer(nil) }}
	db.mu.cleanup = task{name: "cleanup", due: db.obsolete.due, run: func() error {
		db.cleanUp(db.obsolete.take())
		return nil
	}}
	for _, t := range []*task{&db.mu.flush, &db.mu.merge, &db.mu.cleanup} {
		db.background.Go(func() { db.work(t) })
	}
}

// work runs a task whenever it is due, until the DB closes. It retries a failed task with
// increasing delays.
func (db *DB) work(t *task) {
	retry := firstRetry
	for {
		db.mu.Lock()
		for !t.due() && !db.mu.closing {
			db.mu.changed.Wait()
		}
		if db.mu.closing {
			db.mu.Unlock()
			return
		}
		t.busy = true
		db.mu.Unlock()

		err := t.run()

		db.mu.Lock()
		t.busy = false
		if errors.Is(err, errClosing) {
			err = nil
		}
		t.err = err
		db.mu.changed.Broadcast()
		db.mu.Unlock()
		db.commit.advance(func() {}) // stalled writers return the error
		if err == nil {
			retry = firstRetry
			continue
		}
		db.counters.failures.Add(1)
		db.env.logger.Error("a "+t.name+" failed and will be tried again",
			"dir", db.env.dir, "error", err, "after", retry)
		select {
		case <-db.closing:
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

// errClosing aborts a flush or merge when the DB closes.
var errClosing = errors.New("lsm: closing")

func (db *DB) isClosing() bool {
	select {
	case <-db.closing:
		return true
	default:
		return false
	}
}

// memtableDue reports whether a memtable must be flushed: it is full, its log failed,
// or it takes too much memory. Called under mu.
func (db *DB) memtableDue() bool {
	return len(db.current.Load().memtables) > 1 || db.writer.due.Load()
}

// flushDue reports whether a memtable must be flushed and the number of tables permits
// it. Called under mu.
func (db *DB) flushDue() bool {
	return db.memtableDue() &&
		(db.options.MergeRule.excess(db.units(db.current.Load().tables)) < maxExcess || db.mu.merge.err != nil)
}

// takeNumber returns the number of a new file. Called under mu.
func (db *DB) takeNumber() uint64 {
	db.mu.nextNumber++
	return db.mu.nextNumber - 1
}

// beginLog returns the number of a new log, and notes the log in its memtable, so that a
// manifest written from now on keeps it.
func (db *DB) beginLog(m *memtable) uint64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	number := db.takeNumber()
	if m.log == 0 {
		m.log = number
	}
	return number
}

// returnNumber takes back a number that no file has, unless a higher one is in use.
func (db *DB) returnNumber(number uint64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.mu.nextNumber == number+1 {
		db.mu.nextNumber = number
	}
}

// peekNumber returns the number of the next file.
func (db *DB) peekNumber() uint64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.nextNumber
}

// flushError returns the error of the last flush.
func (db *DB) flushError() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mu.flush.err
}

// installTable replaces a memtable or merged tables by a durable table: in the
// manifest, then in the view. A table without entries is omitted.
//
// Steps and crash states: the directory is synced, so that the table exists before it
// is named. Until the manifest is renamed, a crash leaves the old store, and the table
// is an orphan. After that it leaves the new store, and the replaced files are orphans.
// Open removes orphans.
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
	v := db.current.Load() // its tables change only under install
	tables := replaceTables(v.tables, output, merged)

	db.mu.Lock()
	next := db.describe(tables, flushed)
	db.mu.Unlock()
	if err := next.write(db.env.fs, db.env.path(manifestName)); err != nil {
		db.dropUnlessNamed(facts)
		return err
	}

	var old *view
	db.commit.advance(func() {
		old = db.publish(tables, flushed != nil)
		logs, resolved := db.writer.logs.cut(next.firstLog)
		db.obsolete.add(logs, merged)
		if resolved {
			db.env.logger.Info("writes continue in a new log", "dir", db.env.dir)
		}
	})
	db.wake() // the cleanup worker

	// Drop the filter pages of removed tables before their mappings.
	db.updateFilters()
	old.retire()
	return nil
}

// publish replaces the tables of the view and returns the old view. If flushed is set, it
// also removes the oldest memtable.
func (db *DB) publish(tables []*table, flushed bool) (old *view) {
	db.mu.Lock()
	defer db.mu.Unlock()
	memtables := db.current.Load().memtables
	if flushed {
		memtables = memtables[:len(memtables)-1]
		db.mu.activeFlush = nil // its inputs are no longer in the list of tables
	}
	return db.setView(memtables, tables)
}

// openOutput opens a new table for reading. A table that cannot be read is not
// installed.
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
	// Most of the table is still in the page cache. Mapping it now avoids page faults
	// in lookups.
	_ = t.mapping.Advise(vfs.AdvisePresent) // best effort
	return t, nil
}

// replaceTables returns tables with output in place of merged, which are consecutive,
// or before all if merged is empty. output may be nil.
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

// describe returns the manifest for the given tables, without a memtable that has been
// flushed to one of them. Called under mu.
func (db *DB) describe(tables []*table, flushed *memtable) manifest {
	m := manifest{id: db.env.id, nextNumber: db.mu.nextNumber, firstLog: db.mu.nextNumber}
	for _, t := range tables {
		m.tables = append(m.tables, t.facts)
	}
	memtables := db.current.Load().memtables
	m.lastSequence = db.commit.visible.Load()
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

// dropUnlessNamed removes a table after writing its manifest failed. If the manifest
// was replaced nevertheless, or cannot be read, the table stays.
func (db *DB) dropUnlessNamed(facts tableFacts) {
	m, err := readManifest(db.env.fs, db.env.path(manifestName))
	if err == nil && !slices.Contains(m.tables, facts) && facts.entries > 0 {
		_ = db.env.fs.Remove(db.env.path(tableName(facts.number)))
	}
}
