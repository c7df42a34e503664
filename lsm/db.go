package lsm

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/offheap"
)

// DB is an open store. All its methods may be called from any number of
// goroutines at once.
//
// Locks are taken in this order: install, syncing, mu. Reading takes none.
type DB struct {
	env     environment
	options Options
	lock    io.Closer // of the LOCK file; nil if read-only
	filters *bloom.Manager
	share   storeShare // of Options.Budget

	stopFilters func()       // ends the filters' background work
	memory      offheap.Pool // of memtables

	// current is the newest view, nil once the DB is closed.
	current atomic.Pointer[view]
	// visible is the sequence number up to which reads see writes. It is
	// stored after all of a batch is in the memtable.
	visible atomic.Uint64

	// install is held while the manifest is written and the view changed
	// accordingly: the list of tables changes under it only.
	install sync.Mutex
	// syncing is held while logs are synced or closed.
	syncing struct {
		sync.Mutex
		through uint64 // writes up to this sequence number are durable
	}
	// mu is held by the one who writes, and guards what writing and the
	// background share.
	mu struct {
		sync.Mutex
		changed sync.Cond // anything below, or the view

		log        *logFile   // being written; nil until there is something to write
		logs       []*logFile // with writes that are not in tables, oldest first
		spare      *spareLog  // for the next log, or nil
		scratch    Batch      // of Set and Delete
		nextNumber uint64

		writes, writtenBytes, logBytes uint64 // see WriteStats

		begun     time.Time     // when the memtable being filled was
		lookAgain int64         // how full it is when a writer looks whether to slow down
		flushTook time.Duration // of late, for each memtable's worth that it wrote
		rule      ruleCost      // of the flushes since Open

		// logError is why a log failed, until all that was in memory then is in
		// tables; goodLog is the number from which on logs are not concerned.
		logError error
		goodLog  uint64

		flushing, merging, cleaning bool
		merges                      []*merge // a large one, and those it pauses for
		flushInputs                 []*table // the newest ones, which the flush under way merges with its memtable
		flushUnits                  uint64   // what it writes, in memtables
		flushError, mergeError      error    // of the last attempt
		closing                     bool
		checkpoints                 int // under way: no file may go
		leftovers                   leftovers
	}
	running    bool          // the background does; set before Open returns
	closing    chan struct{} // closed when mu.closing is set
	background sync.WaitGroup
	closed     struct {
		sync.Once
		err error
	}
	counters counters
}

// acquire returns the current view, held. The caller lets go of it by unref.
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

// acquireAt returns a view, held, and a sequence number for which it holds
// everything. If the view is still the current one after the sequence number
// was read, it was so when that was read: no memtable had been begun behind it,
// and no flush or merge had dropped a version that the number needs.
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

// Get appends the value of a key to dst. On any error it returns dst unchanged;
// ErrNotFound if there is no value. It allocates nothing if dst has room.
//
// ErrNotFound is always based on verified bytes. A value comes from a block that was
// verified when it was first read: if it was damaged since, Get returns
// the damaged bytes.
func (db *DB) Get(dst, key []byte) ([]byte, error) {
	v, err := db.acquire()
	if err != nil {
		return dst, err
	}
	// The view comes first: what is visible by now and missing in it was
	// written after Get was called.
	dst, err = v.get(dst, key, db.visible.Load())
	v.unref()
	return dst, err
}

// GetVerified is Get of a value that is verified now. It takes about half a microsecond
// longer. It is for a value that the caller cannot check otherwise, such as one that says
// that a document has expired.
func (db *DB) GetVerified(dst, key []byte) ([]byte, error) {
	v, err := db.acquire()
	if err != nil {
		return dst, err
	}
	dst, err = v.getVerified(dst, key, db.visible.Load())
	v.unref()
	return dst, err
}

// setView makes a list of memtables and tables the current view and returns the
// one it replaced, for the caller to retire outside mu. Called under mu.
func (db *DB) setView(memtables []*memtable, tables []*table) (old *view) {
	old = db.current.Swap(newView(memtables, tables))
	db.mu.changed.Broadcast()
	return old
}

// Close ends the background work and releases everything. Writes that have
// returned are in the log, which the next Open reads, and so nothing is flushed,
// except at the durability None. Iterators and snapshots answer ErrClosed
// from now on, and hold on to their mappings until they are closed, too.
//
// Close may be called again, and returns the same.
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

	// An install by Checkpoint's or Refresh's hand may still be under way.
	db.install.Lock()
	defer db.install.Unlock()
	db.mu.Lock()
	v := db.current.Swap(nil)
	logs := db.mu.logs
	db.mu.logs, db.mu.log = nil, nil
	if db.mu.checkpoints > 0 {
		db.mu.leftovers.paths = nil // the next Open removes them
	}
	db.mu.Unlock()

	db.syncing.Lock()
	for _, log := range logs {
		err = errors.CombineErrors(err, log.close())
	}
	db.syncing.Unlock()
	db.stopFilters()
	if db.running {
		db.mu.leftovers.filters = true
		_ = db.cleanUp() // it has no errors of its own
		db.dropSpare()
	}
	// Filters are dropped before the mappings that they are loaded from.
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
