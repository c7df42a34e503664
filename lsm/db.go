package lsm

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/offheap"
)

// DB is an open store. It is safe for concurrent use.
type DB struct {
	// Lock order: install, logs.syncing, mu, logs.mu. Readers take no lock.

	env     environment
	options Options
	lock    io.Closer // of the LOCK file; nil if read-only
	filters *bloom.Manager
	share   storeShare // of Options.Budget

	stopFilters func()       // stops the filters' background work
	memory      offheap.Pool // of memtables

	// current is the newest view; nil once the DB is closed.
	current atomic.Pointer[view]
	// visible is the sequence number up to which readers see writes. It is stored after
	// the whole batch is in the memtable.
	visible atomic.Uint64

	// install is held while the manifest is written and the view is replaced. The list
	// of tables changes only under it.
	install  sync.Mutex
	logs     logSet
	obsolete obsoleteFiles
	// mu serializes writers and guards the state shared with the background workers.
	mu struct {
		sync.Mutex
		changed sync.Cond // signals any change of the fields below or of the view

		scratch    Batch // of Set and Delete
		nextNumber uint64

		writes, writtenBytes, logBytes uint64 // see WriteStats

		pacer pacer

		flush, merge, cleanup task
		activeFlush           *flush   // nil if none
		merges                []*merge // a large merge and the merges for which it pauses
		closing               bool
	}
	running    bool          // background workers run; set before Open returns
	closing    chan struct{} // closed when mu.closing is set
	background sync.WaitGroup
	closed     struct {
		sync.Once
		err error
	}
	counters counters
}

// acquire returns the current view with a reference. The caller must call unref.
func (db *DB) acquire() (*view, error) {
	for {
		v := db.current.Load()
		if v == nil {
			return nil, ErrClosed
		}
		v.ref()
		if db.current.Load() == v {
			return v, nil
		}
		v.unref()
	}
}

// acquireAt returns a view with a reference, and a sequence number for which the view
// is complete. If the view is still current after the sequence number was read, it was
// current when that was read: no newer memtable existed, and no flush or merge had
// dropped a version that the number needs.
func (db *DB) acquireAt() (*view, uint64, error) {
	for {
		v, err := db.acquire()
		if err != nil {
			return nil, 0, err
		}
		sequence := db.visible.Load()
		if db.current.Load() == v {
			return v, sequence, nil
		}
		v.unref()
	}
}

// Get appends the value of key to dst. On error it returns dst unchanged; the error is
// ErrNotFound if there is no value. It does not allocate if dst has capacity.
//
// ErrNotFound is always based on verified bytes. A value is read from a block that was
// verified at its first read: if the block was damaged since, Get can return damaged
// bytes.
func (db *DB) Get(dst, key []byte) ([]byte, error) {
	v, err := db.acquire()
	if err != nil {
		return dst, err
	}
	// Load the view first: a write that is visible now and missing in the view was made
	// after the call of Get.
	dst, err = v.get(dst, key, db.visible.Load())
	v.unref()
	return dst, err
}

// GetVerified is Get with verification of the value's block in this call. It takes
// about half a microsecond longer. Use it for values that the caller cannot check, for
// example a marker of an expired document.
func (db *DB) GetVerified(dst, key []byte) ([]byte, error) {
	v, err := db.acquire()
	if err != nil {
		return dst, err
	}
	dst, err = v.getVerified(dst, key, db.visible.Load())
	v.unref()
	return dst, err
}

// setView replaces the current view and returns the old one, which the caller must
// retire outside mu. Called under mu.
func (db *DB) setView(memtables []*memtable, tables []*table) (old *view) {
	old = db.current.Swap(newView(memtables, tables))
	db.mu.changed.Broadcast()
	return old
}

// Close stops the background work and releases all resources. It does not flush,
// because the next Open replays the logs, except with Durability None. Open iterators
// and snapshots return ErrClosed from then on; they keep their mappings until they are
// closed.
//
// Close is idempotent and returns the same error each time.
func (db *DB) Close() error {
	db.closed.Do(func() { db.closed.err = db.close() })
	return db.closed.err
}

func (db *DB) close() error {
	var err error
	if db.running && db.options.Durability == None {
		err = db.Flush()
	}
	db.mu.Lock()
	db.mu.closing = true
	close(db.closing)
	db.mu.changed.Broadcast()
	db.mu.Unlock()
	db.background.Wait()

	// A Checkpoint or Refresh may still be installing.
	db.install.Lock()
	defer db.install.Unlock()
	db.mu.Lock()
	v := db.current.Swap(nil)
	db.mu.Unlock()

	err = errors.CombineErrors(err, db.logs.close())
	db.stopFilters()
	if db.running {
		db.cleanUp(db.obsolete.takeLast())
		db.logs.dropSpare()
	}
	// Filters are loaded from the mappings, so drop the filters first.
	err = errors.CombineErrors(err, db.filters.Update())
	if v != nil {
		v.retire()
	}
	db.memory.Close()
	db.options.Budget.leave(&db.share)
	if db.lock != nil {
		err = errors.CombineErrors(err, db.lock.Close())
	}
	return err
}
