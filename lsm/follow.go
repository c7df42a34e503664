package lsm

import (
	"context"
	"fmt"

	"github.com/cockroachdb/errors"
)

// readAttempts is how often a reader tries to open what a writer keeps changing.
const readAttempts = 100

// openReadOnly opens what is there, without a lock and without writing. A file
// may vanish between the reading of the manifest and its opening, if a writer is
// at work; then a newer manifest names its successor.
func openReadOnly(dir string, o Options) (*DB, error) {
	var err error
	for range readAttempts {
		db := newDB(dir, o)
		var m manifest
		if m, err = db.openPresent(); err == nil {
			db.startFilters()
			return db, nil
		}
		_ = db.Close()
		if now, again := readManifest(o.FS, db.env.path(manifestName)); again != nil || now.sameFiles(&m) {
			break
		}
	}
	return nil, err
}

// openPresent loads what the present manifest names.
func (db *DB) openPresent() (manifest, error) {
	m, err := readManifest(db.env.fs, db.env.path(manifestName))
	if isNotExist(err) {
		err = errors.WithStack(fmt.Errorf("%w: %w", ErrNoStore, err))
	}
	if err != nil {
		return m, err
	}
	db.mu.nextNumber, db.env.id = m.nextNumber, m.id
	if err := db.load(m, nil); err != nil {
		return m, err
	}
	if db.options.Follow {
		return m, nil
	}
	names, err := db.env.fs.List(db.env.dir)
	if err != nil {
		return m, errors.Wrap(err, "lsm: list the store")
	}
	// Logs go after the manifest has changed. If it has not, all are listed.
	if now, err := readManifest(db.env.fs, db.env.path(manifestName)); err != nil {
		return m, err
	} else if !now.sameFiles(&m) {
		return m, errChanged
	}
	return m, db.replayLogs(logsOf(names, m.firstLog), nil)
}

// errChanged says that a writer changed the store while it was being opened.
var errChanged = errors.New("lsm: the store changes faster than it can be opened")

// Refresh takes up what the writer has flushed since Open or the last Refresh,
// and tells whether there was anything. It needs Options.Follow; without it
// there is nothing to take up, and nothing happens. Snapshots and iterators keep
// what they have.
func (db *DB) Refresh(ctx context.Context) (changed bool, err error) {
	db.install.Lock()
	defer db.install.Unlock()
	if db.current.Load() == nil {
		return false, ErrClosed
	}
	if !db.options.Follow {
		return false, nil
	}
	var last manifest
	for attempt := range readAttempts {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		m, failed := readManifest(db.env.fs, db.env.path(manifestName))
		if failed != nil {
			return false, failed
		}
		v := db.current.Load()
		switch {
		case m.id != db.env.id:
			return false, errors.Newf("lsm: another store has taken the place of the one at %s", db.env.dir)
		case db.lists(v, m):
			return false, nil
		case attempt > 0 && m.sameFiles(&last):
			return false, err
		}
		if err = db.load(m, v.tables); err == nil {
			return true, nil
		}
		last = m
	}
	return false, err
}

// lists tells whether a view has the tables of a manifest.
func (db *DB) lists(v *view, m manifest) bool {
	have := manifest{tables: make([]tableFacts, len(v.tables))}
	for i, t := range v.tables {
		have.tables[i] = t.facts
	}
	return m.sameTables(&have)
}
