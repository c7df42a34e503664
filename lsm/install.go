package lsm

import (
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// installTable replaces a memtable or merged tables by a durable table, of which it
// releases a reference: in the manifest, then in the view. The table is nil if it would
// have no entries.
//
// Steps and crash states: the directory is synced, so that the table exists before it
// is named. Until the manifest is renamed, a crash leaves the old store, and the table
// is an orphan. After that it leaves the new store, and the replaced files are orphans.
// Open removes orphans.
func (db *DB) installTable(output *table.Reader, flushed *memtable.Memtable, merged []*table.Reader) error {
	if output != nil {
		defer output.Unref()
	}
	db.install.Lock()
	defer db.install.Unlock()

	v := db.schedule.current.Load() // its tables change only under install
	tables := replaceTables(v.tables, output, merged)

	db.schedule.mu.Lock()
	next := db.describe(tables, flushed)
	db.schedule.mu.Unlock()
	if err := next.write(db.env.FS, db.env.path(manifestName)); err != nil {
		if output != nil {
			db.dropUnlessNamed(output.Facts)
		}
		return err
	}

	var (
		old      *view
		logs     []*logFile
		resolved bool
	)
	db.commit.advance(func() {
		old = db.schedule.publish(tables, flushed != nil)
		logs, resolved = db.writer.logs.cut(next.firstLog)
	})
	if resolved {
		db.env.Logger.Info("writes continue in a new log", "dir", db.env.dir)
	}

	// Drop the filter pages of removed tables before their mappings, and the mappings
	// before the files: the last of them frees the cached pages, which takes 10 to 40 ms
	// and is left to the cleanup worker.
	now := db.schedule.current.Load()
	db.filters.replace(now.filters())
	old.retire()
	now.addTags()
	db.obsolete.add(logs, merged)
	db.schedule.wake()
	return nil
}

// openOutput opens a new table for reading and returns a reference to it; nil if it has no
// entries. A table that cannot be read is not installed.
//
// The oldest table has most of the entries, so most lookups would verify its blocks. It is
// verified here, sequentially, which takes less time, and before its inputs are removed.
// For pause see fillTable.
func (db *DB) openOutput(facts table.Facts, oldest bool, pause func() error) (t *table.Reader, err error) {
	if facts.Entries == 0 {
		return nil, nil
	}
	if err = db.env.FS.SyncDir(db.env.dir); err == nil {
		t, err = db.env.openTable(facts)
	}
	if err == nil {
		t.Ref()
		t.Populate()
		if oldest {
			t.AddTags()
			err = t.VerifyCached(func() error { return db.betweenSteps(pause) })
		}
		if err != nil {
			t.Unref()
		}
	}
	if err != nil {
		_ = db.env.FS.Remove(db.env.path(tableName(facts.Number)))
		return nil, errors.Wrap(err, "lsm: open a new table")
	}
	return t, nil
}

// replaceTables returns tables with output in place of merged, which are consecutive,
// or before all if merged is empty. output may be nil.
func replaceTables(tables []*table.Reader, output *table.Reader, merged []*table.Reader) []*table.Reader {
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
func (db *DB) describe(tables []*table.Reader, flushed *memtable.Memtable) manifest {
	m := manifest{id: db.env.Store, nextNumber: db.schedule.mu.nextNumber, firstLog: db.schedule.mu.nextNumber}
	for _, t := range tables {
		m.tables = append(m.tables, t.Facts)
	}
	memtables := db.schedule.current.Load().memtables
	m.lastSequence = db.commit.visible.Load()
	for _, memory := range memtables {
		if memory == flushed {
			continue
		}
		if memory.Log != 0 {
			m.firstLog = min(m.firstLog, memory.Log)
		}
		if !memory.Empty() {
			m.lastSequence = min(m.lastSequence, memory.First()-1)
		}
	}
	return m
}

// dropUnlessNamed removes a table after writing its manifest failed. If the manifest
// was replaced nevertheless, or cannot be read, the table stays.
func (db *DB) dropUnlessNamed(facts table.Facts) {
	m, err := readManifest(db.env.FS, db.env.path(manifestName))
	if err == nil && !slices.Contains(m.tables, facts) && facts.Entries > 0 {
		_ = db.env.FS.Remove(db.env.path(tableName(facts.Number)))
	}
}
