package lsm

import (
	"io"
	"sync"

	"github.com/cockroachdb/errors"

	"docstore/internal/offheap"
	"docstore/lsm/internal/memtable"
)

// DB is an open store. It is safe for concurrent use.
type DB struct {
	// Lock order: install, commit.syncing, logs.syncing, commit.mu, schedule.mu, logs.mu.
	// Readers take no lock.

	env     environment
	options Options
	lock    io.Closer // of the LOCK file; nil if read-only
	filters filterSet
	share   storeShare   // of Options.Budget
	memory  offheap.Pool // of memtables

	commit committer      // write path: sequence numbers, group commit, backpressure
	writer memtableWriter // current memtable and logs; guarded by commit.mu

	schedule scheduler // current view, file numbers, background tasks

	// install is held while the manifest is written and the view is replaced. The list
	// of tables changes only under it.
	install  sync.Mutex
	obsolete obsoleteFiles
	running  bool // background workers run; set before Open returns
	closed   struct {
		sync.Once
		err error
	}
	counters counters
}

// acquire returns the current view with a reference. The caller must call unref.
func (db *DB) acquire() (*view, error) {
	for {
		v := db.schedule.current.Load()
		if v == nil {
			return nil, ErrClosed
		}
		v.ref()
		if db.schedule.current.Load() == v {
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
		sequence := db.commit.visible.Load()
		if db.schedule.current.Load() == v {
			return v, sequence, nil
		}
		v.unref()
	}
}

// Get appends the value of key to dst. On error it returns dst unchanged; the error is
// ErrNotFound if there is no value. It does not allocate if dst has capacity.
//
// ErrNotFound is always based on verified bytes. A value is read from a block that was
// verified at its first read or after it was written: if the block was damaged since, Get
// can return damaged bytes.
func (db *DB) Get(dst, key []byte) ([]byte, error) {
	v, err := db.acquire()
	if err != nil {
		return dst, err
	}
	// Load the view first: a write that is visible now and missing in the view was made
	// after the call of Get.
	dst, err = v.get(dst, key, db.commit.visible.Load())
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
	dst, err = v.getVerified(dst, key, db.commit.visible.Load())
	v.unref()
	return dst, err
}

// filterProbes returns the number of probes of the present filters.
func (db *DB) filterProbes() (probes uint64) {
	v, err := db.acquire()
	if err != nil {
		return 0
	}
	defer v.unref()
	for _, f := range v.filters() {
		probes += f.Stats().Probes
	}
	return probes
}

// Set writes a value for a key. It is equivalent to Apply of a batch with one write.
func (db *DB) Set(key, value []byte) error { return db.applyOne(op{opSet, key, value}) }

// Delete deletes a key, which need not exist. It is equivalent to Apply of a batch with
// one write.
func (db *DB) Delete(key []byte) error { return db.applyOne(op{opDelete, key, nil}) }

func (db *DB) applyOne(o op) error {
	if err := checkSizes(o.key, len(o.value)); err != nil {
		return err
	}
	// Prefetch the key's slot in the memtable while the log is written.
	hash := memtable.Hash(o.key)
	if v := db.schedule.current.Load(); v != nil {
		v.memtables[0].PrefetchSlot(hash)
	}
	return db.commit.commitOne(o, hash)
}

// Apply applies a batch atomically. When it returns nil the writes are visible and
// survive as Options.Durability specifies. After an error nothing was written, with two
// exceptions. If the log failed, a crash before the next successful write may leave the
// writes. If a PowerLoss writer was waiting for the sync and the sync failed or the
// store was closed, the writes are visible and may or may not survive. Apply does not
// modify the batch.
func (db *DB) Apply(b *Batch) error {
	if b.err != nil {
		return b.err
	}
	return db.commit.commitBatch(b)
}

// Sync makes all writes that returned before the call survive a power cut.
func (db *DB) Sync() error {
	if err := db.commit.rejected(); err != nil {
		return err
	}
	if db.options.Durability == None {
		return db.Flush()
	}
	return db.commit.sync(db.commit.visible.Load())
}

// memtableBytes returns the size of a full memtable.
func (db *DB) memtableBytes() int64 {
	return db.options.Budget.memtableBytes(db.options.MemtableBytes)
}

// mostMemtableBytes returns the maximum memory of a full memtable. Replaced slot
// tables, unused slots and the sorted order are not part of its size; with small
// entries they are up to half of it.
func (db *DB) mostMemtableBytes() int64 { return db.memtableBytes() / 2 * 3 }

// adaptToBudget adapts the store to a changed memtable size. It releases spare memory,
// requests a flush if the memtable is now too large, and wakes the merger, because the
// rule counts in memtables.
func (db *DB) adaptToBudget() {
	db.memory.Clear()
	_ = db.commit.exclusive(func() error { // a closed DB has no memtable
		db.writer.checkSize()
		return nil
	})
	db.schedule.wake()
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
	db.schedule.close()
	db.commit.close()
	db.schedule.background.Wait()

	// A Checkpoint or Refresh may still be installing.
	db.install.Lock()
	defer db.install.Unlock()
	db.schedule.mu.Lock()
	v := db.schedule.current.Swap(nil)
	db.schedule.mu.Unlock()

	err = errors.CombineErrors(err, db.writer.logs.close())
	db.filters.stop()
	if db.running {
		db.obsolete.cleanUp(true)
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
