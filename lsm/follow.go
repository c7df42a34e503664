package lsm

import (
	"context"
	"fmt"

	"docstore/lsm/internal/table"

	"github.com/cockroachdb/errors"
)

// readAttempts bounds the attempts to open a store that its writer keeps changing.
const readAttempts = 100

// openReadOnly opens the store without locking or writing. If the store's writer
// removes a file between the reading of the manifest and the opening of the file,
// openReadOnly retries with the new manifest.
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

// openPresent loads the current manifest.
func (db *DB) openPresent() (manifest, error) {
	m, err := readManifest(db.env.FS, db.env.path(manifestName))
	if isNotExist(err) {
		err = errors.WithStack(fmt.Errorf("%w: %w", ErrNoStore, err))
	}
	if err != nil {
		return m, err
	}
	db.schedule.mu.nextNumber, db.env.Store = m.nextNumber, m.id
	if err := db.load(m, nil); err != nil {
		return m, err
	}
	if db.options.Follow {
		return m, nil
	}
	names, err := db.env.FS.List(db.env.dir)
	if err != nil {
		return m, errors.Wrap(err, "lsm: list the store")
	}
	// Logs are removed after the manifest has changed. If it has not, all logs are
	// listed.
	if now, err := readManifest(db.env.FS, db.env.path(manifestName)); err != nil {
		return m, err
	} else if !now.sameFiles(&m) {
		return m, errChanged
	}
	return m, db.replayLogs(logsOf(names, m.firstLog), nil)
}

// errChanged: a writer changed the store while it was being opened.
var errChanged = errors.New("lsm: the store changes faster than it can be opened")

// Refresh loads the tables that the writer has flushed since Open or the last Refresh,
// and reports whether there were any. Without Options.Follow it does nothing. Snapshots
// and iterators keep their state.
func (db *DB) Refresh(ctx context.Context) (changed bool, err error) {
	db.install.Lock()
	defer db.install.Unlock()
	if db.schedule.current.Load() == nil {
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
		m, failed := readManifest(db.env.FS, db.env.path(manifestName))
		if failed != nil {
			return false, failed
		}
		v := db.schedule.current.Load()
		switch {
		case m.id != db.env.Store:
			return false, errors.Newf("lsm: the store at %s was replaced by another one", db.env.dir)
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

// lists reports whether a view has exactly the tables of a manifest.
func (db *DB) lists(v *view, m manifest) bool {
	have := manifest{tables: make([]table.Facts, len(v.tables))}
	for i, t := range v.tables {
		have.tables[i] = t.Facts
	}
	return m.sameTables(&have)
}
