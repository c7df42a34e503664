package lsm

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// Open opens the store in a directory, and creates directory and store if they do not
// exist. If another DB has the directory open for writing, the error is ErrLocked. With
// ReadOnly or Follow nothing is created; a missing store is ErrNoStore.
func Open(dir string, opts *Options) (*DB, error) {
	o, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return openReadOnly(dir, o)
	}
	if err := vfs.MakeDir(o.FS, dir); err != nil {
		return nil, errors.Wrap(err, "lsm: make the directory")
	}
	lock, err := lockDir(o.FS, dir)
	if err != nil {
		return nil, err
	}
	db := newDB(dir, o)
	db.lock = lock
	if err := db.open(); err != nil {
		return nil, errors.CombineErrors(err, db.Close())
	}
	db.filters.start(o.Budget)
	db.startTasks()
	db.commit.advance(db.writer.checkSize) // the logs may hold a large batch
	return db, nil
}

// startTasks starts the background work, which Close stops.
func (db *DB) startTasks() {
	db.running = true
	db.schedule.start(db.flushOldest, func() error { return db.mergeNewer(nil) }, func() error {
		db.obsolete.cleanUp(false)
		return nil
	}, db.obsolete.due)
}

// newDB returns an empty DB without background work.
func newDB(dir string, o Options) *DB {
	db := &DB{
		env:      newEnvironment(dir, o, o.Budget),
		options:  o,
		schedule: scheduler{rule: o.MergeRule, closing: make(chan struct{})},
	}
	db.schedule.env, db.schedule.counters = &db.env, &db.counters
	db.schedule.mu.changed.L = &db.schedule.mu.Mutex
	db.schedule.memtableBytes, db.schedule.due = db.memtableBytes, &db.writer.due
	db.schedule.ran = func() { db.commit.advance(func() {}) } // stalled writers return the task's error
	db.writer.db, db.writer.logs.env = db, &db.env
	db.commit.init(&db.writer, o.Durability == PowerLoss, &db.counters)
	if o.ReadOnly {
		db.commit.mu.err = ErrReadOnly
	}
	db.filters = filterSet{Manager: bloom.NewManager(0), env: &db.env, stop: func() {}}
	db.obsolete.env, db.obsolete.logs, db.obsolete.filters = &db.env, &db.writer.logs, &db.filters
	db.memory.Limit, db.memory.Grown = db.memtableBytes, o.Budget.grow
	db.schedule.current.Store(newView([]*memtable.Memtable{memtable.New(&db.memory, o.MemtableBytes, 0, o.Budget.account())}, nil))
	db.share = storeShare{filters: db.filters.Manager, most: o.FilterBytes, probes: db.filterProbes, resized: db.adaptToBudget}
	o.Budget.join(&db.share)
	return db
}

// open loads the state of the directory.
func (db *DB) open() error {
	path := db.env.path(manifestName)
	m, err := readManifest(db.env.FS, path)
	if isNotExist(err) {
		m, err = createStore(&db.env)
	}
	if err != nil {
		return err
	}
	names, err := db.env.FS.List(db.env.dir)
	if err != nil {
		return errors.Wrap(err, "lsm: list the store")
	}
	if err := db.checkPresent(m, names); err != nil {
		return err
	}
	db.env.Store = m.id
	if err := db.load(m, nil); err != nil {
		return err
	}
	db.schedule.mu.nextNumber = nextNumber(m, names)
	if err := db.removeOrphans(m, names); err != nil {
		return err
	}
	return db.replayLogs(logsOf(names, m.firstLog), db.flushOldest)
}

// checkPresent returns a CorruptionError if a table of the manifest is missing. The
// caller holds the directory's lock, so no other process removes tables.
func (db *DB) checkPresent(m manifest, names []string) error {
	for _, facts := range m.tables {
		if name := tableName(facts.Number); !slices.Contains(names, name) {
			return errors.WithStack(&CorruptionError{Path: db.env.path(name), Reason: "missing, though the manifest names it"})
		}
	}
	return nil
}

// load opens the tables of a manifest of this store and replaces the view. It reuses
// the tables in have that are still listed.
func (db *DB) load(m manifest, have []*table.Reader) error {
	tables, err := db.openTables(m.tables, have)
	if err != nil {
		return err
	}
	db.commit.visible.Store(m.lastSequence)
	old := db.schedule.publish(tables, false)
	now := db.schedule.current.Load()
	filters := now.filters()
	if have == nil {
		db.filters.restore()
		db.filters.Track(filters...) // their pages are loaded in the background
	} else {
		db.filters.replace(filters)
	}
	old.retire()
	now.addTags()
	return nil
}

// openTables opens the tables of a manifest that are not in have.
func (db *DB) openTables(all []table.Facts, have []*table.Reader) (tables []*table.Reader, err error) {
	opened := make([]*table.Reader, 0, len(all))
	for _, facts := range all {
		i := slices.IndexFunc(have, func(t *table.Reader) bool { return t.Facts == facts })
		if i >= 0 {
			tables = append(tables, have[i])
			continue
		}
		t, err := db.env.openTable(facts)
		if err != nil {
			newView(nil, opened).retire() // closes them
			return nil, err
		}
		opened, tables = append(opened, t), append(tables, t)
	}
	return tables, nil
}

// createStore writes the manifest of an empty store. If there are tables or logs, the
// manifest was lost, and they are not overwritten.
func createStore(env *environment) (manifest, error) {
	names, err := env.FS.List(env.dir)
	if err != nil {
		return manifest{}, errors.Wrap(err, "lsm: list the store")
	}
	for _, name := range names {
		if suffix, _ := parseName(name); suffix == tableSuffix || suffix == logSuffix {
			return manifest{}, errors.WithStack(&CorruptionError{
				Path:   env.path(manifestName),
				Reason: "missing, though there is " + name,
			})
		}
	}
	m := manifest{nextNumber: 1, firstLog: 1}
	rand.Read(m.id[:])
	return m, m.write(env.FS, env.path(manifestName))
}

// nextNumber returns a number above every number in use.
func nextNumber(m manifest, names []string) uint64 {
	next := m.nextNumber
	for _, name := range names {
		if suffix, number := parseName(name); suffix != "" {
			next = max(next, number+1)
		}
	}
	return next
}

// logsOf returns the numbers of the logs that are not obsolete, ascending.
func logsOf(names []string, first uint64) []uint64 {
	var logs []uint64
	for _, name := range names {
		if suffix, number := parseName(name); suffix == logSuffix && number >= first {
			logs = append(logs, number)
		}
	}
	slices.Sort(logs)
	return logs
}

// removeOrphans removes files of this store that the manifest does not name, which a
// crash left behind. It ignores foreign files. It first syncs the directory: the
// process that renamed the manifest may have died before the sync, and the previous
// manifest may name the orphans.
func (db *DB) removeOrphans(m manifest, names []string) error {
	orphans := orphansOf(m, names)
	if len(orphans) == 0 {
		return nil
	}
	if err := db.env.FS.SyncDir(db.env.dir); err != nil {
		return errors.Wrap(err, "lsm: remove orphans")
	}
	for _, name := range orphans {
		if err := db.env.FS.Remove(db.env.path(name)); err != nil {
			return errors.Wrap(err, "lsm: remove an orphan")
		}
	}
	return nil
}

func orphansOf(m manifest, names []string) (orphans []string) {
	named := make(map[uint64]bool, len(m.tables))
	for _, t := range m.tables {
		named[t.Number] = true
	}
	for _, name := range names {
		suffix, number := parseName(name)
		if suffix == tableSuffix && !named[number] || suffix == logSuffix && number < m.firstLog || suffix == spoolSuffix ||
			name == manifestName+tmpSuffix || name == filtersName+tmpSuffix {
			orphans = append(orphans, name)
		}
	}
	return orphans
}

// lockDir locks a directory.
func lockDir(fsys vfs.FS, dir string) (lock interface{ Close() error }, err error) {
	lock, err = fsys.Lock(filepath.Join(dir, lockName), vfs.Holder(time.Now()))
	if errors.Is(err, vfs.ErrLocked) {
		err = errors.WithStack(fmt.Errorf("%w: %w", ErrLocked, err))
	}
	return lock, err
}

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
			db.filters.start(o.Budget)
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
		case m.describes(v):
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
