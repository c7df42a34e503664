package lsm

import (
	"time"

	"github.com/cockroachdb/errors"
)

const (
	// maxWaiting is how many full memtables may wait to be written. Writers stop
	// until one has been. With two of them writing 4 million entries took as much
	// processor time, and 60 MB more.
	maxWaiting = 1
	// maxScratchBytes bounds the buffer of Set and Delete between writes.
	maxScratchBytes = 1 << 20
)

// Set writes a value for a key. It is one Apply.
func (db *DB) Set(key, value []byte) error {
	if err := checkSizes(key, len(value)); err != nil {
		return err
	}
	return db.applyOne(op{opSet, key, value})
}

// Delete removes a key, whether or not there is a value for it. It is one Apply.
func (db *DB) Delete(key []byte) error {
	if err := checkSizes(key, 0); err != nil {
		return err
	}
	return db.applyOne(op{opDelete, key, nil})
}

// applyOne commits a single write, encoded in the DB's own batch.
func (db *DB) applyOne(o op) error {
	// Where the key goes in the memtable is fetched while the log is written.
	hash := hashKey(o.key)
	if v := db.current.Load(); v != nil {
		v.memtables[0].versions.prefetchSlot(hash)
	}
	db.mu.Lock()
	// commit reads the batch again after a wait in which it lets go of mu: another
	// writer must not find it here meanwhile.
	b := db.mu.scratch
	db.mu.scratch = Batch{}
	b.Reset()
	if cap(b.data) > maxScratchBytes {
		b = Batch{}
	}
	err := b.add(o)
	if err == nil {
		err = db.commit(&b, &o, hash)
	}
	db.mu.scratch = b
	sequence := db.visible.Load()
	db.mu.Unlock()
	return db.settle(sequence, err)
}

// Apply makes the writes of a batch, all or none. When it returns nil they are
// visible, and survive what Options.Durability says. After an error nothing was
// written, but for two cases. If the log failed, the writes may be there after a
// crash that comes before a later write has returned. If a writer at PowerLoss waited
// for the disk, and that failed or the store was closed, then they are visible, and
// may or may not survive. The batch is left as it is.
func (db *DB) Apply(b *Batch) error {
	if b.err != nil {
		return b.err
	}
	db.mu.Lock()
	err := db.commit(b, nil, 0)
	sequence := db.visible.Load()
	db.mu.Unlock()
	return db.settle(sequence, err)
}

// settle waits until writes up to a sequence number have the durability promised.
func (db *DB) settle(sequence uint64, err error) error {
	if err != nil || db.options.Durability != PowerLoss {
		return err
	}
	return db.syncThrough(sequence)
}

// commit writes a batch to the log, then to the memtable, then shows it. If the
// batch holds a single write, the caller may give that, too, with the hash of its key, and
// spare decoding it. Called under mu, which it may let go of while it waits for room.
func (db *DB) commit(b *Batch, single *op, hash uint32) error {
	if err := db.writeFault(); err != nil || b.count == 0 {
		return err
	}
	data := b.encoded()
	m, err := db.room(len(data), b.count)
	if err != nil {
		return err
	}
	first := db.visible.Load() + 1
	if log := db.mu.log; log != nil {
		if err := log.writer.Append(first, data); err != nil {
			return db.failLogs(err)
		}
		db.mu.logBytes += uint64(len(data))
	}
	if single != nil {
		m.add(*single, hash, first)
	} else if err := m.apply(data, first); err != nil {
		return db.failLogs(err)
	}
	db.mu.writes += uint64(b.count)
	db.mu.writtenBytes += uint64(len(data))
	db.visible.Store(first + uint64(b.count) - 1)
	if db.oversized() {
		db.mu.changed.Broadcast() // wakes the flusher
	}
	return nil
}

// writeFault says why nothing can be written. Called under mu.
func (db *DB) writeFault() error {
	switch {
	case db.mu.closing:
		return ErrClosed
	case db.options.ReadOnly:
		return ErrReadOnly
	}
	return nil
}

// room returns the memtable to write a batch to, and makes sure that the log
// has room for it. A memtable exceeds its size only by a batch that is larger by
// itself, and then holds nothing else. Called under mu.
func (db *DB) room(dataBytes, count int) (*memtable, error) {
	cost, room := int64(memtableCost(uint64(count), uint64(dataBytes))), writeBytes(count, dataBytes)
	for {
		m := db.current.Load().memtables[0]
		fits := m.empty() || m.used()+cost <= db.memtableBytes()
		logged := db.options.Durability == None ||
			db.mu.log != nil && db.mu.log.writer.Fits(dataBytes)
		switch {
		case db.mu.logError != nil:
			if err := db.awaitTables(); err != nil {
				return nil, err
			}
		case fits && m.room() < room: // it is empty
			db.enlargeMemtable(room)
		case fits && logged:
			if m.used() < db.mu.lookAgain || !db.slowDown(m.used()) {
				return m, nil
			}
		case fits && (m.empty() || db.mu.log == nil):
			// No log yet, or one too small for so large a record.
			if err := db.newLog(dataBytes); err != nil {
				return nil, err
			}
		default:
			if err := db.rotate(); err != nil {
				return nil, err
			}
		}
		if err := db.writeFault(); err != nil {
			return nil, err
		}
	}
}

// memtableBytes is the size at which a memtable is full.
func (db *DB) memtableBytes() int64 {
	return db.options.Budget.memtableBytes(db.options.MemtableBytes)
}

// mostMemtableBytes is the memory that a memtable may take when it is full. Slot
// tables that have been replaced, slots not used yet and the order of the keys are
// not part of its size: with small entries they are up to half of it.
func (db *DB) mostMemtableBytes() int64 { return db.memtableBytes() / 2 * 3 }

// oversized reports whether the memtable being filled takes more memory than it may:
// it holds a large batch, or the share of the budget has become smaller. A new
// memtable is never oversized: the region that it reuses is at most as large as the
// share (db.memory.Limit), and its slots are at most half of it (expectedKeys). Called
// under mu.
func (db *DB) oversized() bool {
	return int64(db.current.Load().memtables[0].versions.bytes) > db.mostMemtableBytes()
}

// fitBudget adapts the store to a memtable size that has changed. It releases spare
// memory and wakes the flusher, for a memtable that is too large now, and the merger:
// the rule counts in memtables.
func (db *DB) fitBudget() {
	db.memory.Clear()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.changed.Broadcast()
}

// rotate begins a new memtable and hands the old one to the flusher, or waits
// for it to have fewer. Called under mu; the caller looks again at what it needs.
func (db *DB) rotate() error {
	if len(db.current.Load().memtables)-1 >= maxWaiting {
		return db.awaitTables()
	}
	db.beginMemtable()
	return nil
}

// awaitTables waits for something to change while what is in memory is written to
// tables, or says why it is not. Called under mu.
func (db *DB) awaitTables() error {
	if err := db.mu.flushError; err != nil {
		return errors.Wrap(err, "lsm: no writes while what is in memory cannot be written to a table")
	}
	start := time.Now()
	db.mu.changed.Wait()
	db.counters.stalls.Add(1)
	db.counters.stallNanos.Add(uint64(time.Since(start)))
	return nil
}

// beginMemtable begins a memtable, which gets a log with its first write. Called
// under mu.
func (db *DB) beginMemtable() *memtable {
	v := db.current.Load()
	v.memtables[0].seal()
	keys := v.memtables[0].expectedKeys(db.memtableBytes())
	fresh := newMemtableFor(keys, &db.memory, db.options.MemtableBytes, db.options.Budget)
	memtables := append([]*memtable{fresh}, v.memtables...)
	db.mu.log = nil // the next write begins one
	db.mu.begun, db.mu.lookAgain = time.Now(), 0
	db.setView(memtables, v.tables).retire() // never the last reference to a mapping: the new view lists all of it
	return fresh
}

// enlargeMemtable gives the memtable being filled, which is empty, room for the given
// bytes. Called under mu.
func (db *DB) enlargeMemtable(room int64) *memtable {
	v := db.current.Load()
	large := newMemtable(&db.memory, room, db.options.Budget)
	large.log = v.memtables[0].log
	memtables := append([]*memtable{large}, v.memtables[1:]...)
	db.setView(memtables, v.tables).retire() // as above
	return large
}

// readOnlyError says why a DB that is read only does not write.
func (db *DB) readOnlyError() error {
	if db.current.Load() == nil {
		return ErrClosed
	}
	return ErrReadOnly
}
