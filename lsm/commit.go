package lsm

import (
	"time"

	"github.com/cockroachdb/errors"
)

const (
	// maxWaiting is the number of full memtables that may wait for a flush. Writers
	// stall when there are more. With two, writing 4 million entries took the same
	// processor time and 60 MB more memory.
	maxWaiting = 1
	// maxScratchBytes bounds the buffer that Set and Delete keep between writes.
	maxScratchBytes = 1 << 20
)

// Set writes a value for a key. It is equivalent to Apply of a batch with one write.
func (db *DB) Set(key, value []byte) error {
	if err := checkSizes(key, len(value)); err != nil {
		return err
	}
	return db.applyOne(op{opSet, key, value})
}

// Delete deletes a key, which need not exist. It is equivalent to Apply of a batch with
// one write.
func (db *DB) Delete(key []byte) error {
	if err := checkSizes(key, 0); err != nil {
		return err
	}
	return db.applyOne(op{opDelete, key, nil})
}

// applyOne commits a single write, encoded in the DB's scratch batch.
func (db *DB) applyOne(o op) error {
	// Prefetch the key's slot in the memtable while the log is written.
	hash := hashKey(o.key)
	if v := db.current.Load(); v != nil {
		v.memtables[0].versions.prefetchSlot(hash)
	}
	db.mu.Lock()
	// commit may release mu to wait and read the batch afterwards, so no other writer
	// may use this batch.
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
	return db.waitDurable(sequence, err)
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
	db.mu.Lock()
	err := db.commit(b, nil, 0)
	sequence := db.visible.Load()
	db.mu.Unlock()
	return db.waitDurable(sequence, err)
}

// waitDurable waits until writes up to sequence have the configured durability.
func (db *DB) waitDurable(sequence uint64, err error) error {
	if err != nil || db.options.Durability != PowerLoss {
		return err
	}
	return db.syncThrough(sequence)
}

// commit appends a batch to the log, applies it to the memtable and makes it visible.
// For a batch with one write the caller can pass the op and the hash of its key, which
// avoids decoding. Called under mu, which it may release while it waits for space.
//
// The steps of a write:
//
//	with mu:
//	  wait until memtable and log have space       room
//	  append the batch to the log, if there is one commit
//	  add the batch to the memtable                commit
//	  publish the last sequence number             commit
//	without mu, with Durability PowerLoss only:
//	  wait until a sync covers the write           waitDurable
//
// So batches are in the log, and become visible, in the order of their sequence numbers,
// and a reader sees a batch completely or not at all. A reader can see a batch before it
// is durable. The sync does not need mu: concurrent writers append meanwhile, and the
// next sync covers all of them (groupSync).
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
	if log := db.logs.current(); log != nil {
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

// writeFault returns the reason why writes are impossible. Called under mu.
func (db *DB) writeFault() error {
	switch {
	case db.mu.closing:
		return ErrClosed
	case db.options.ReadOnly:
		return ErrReadOnly
	}
	return nil
}

// room returns a memtable that has space for the batch, and ensures that the log has
// space. A memtable exceeds its size only for a batch that is larger than a memtable;
// it then holds nothing else. Called under mu.
func (db *DB) room(dataBytes, count int) (*memtable, error) {
	cost, room := int64(memtableCost(uint64(count), uint64(dataBytes))), writeBytes(count, dataBytes)
	for {
		m := db.current.Load().memtables[0]
		fits := m.empty() || m.used()+cost <= db.memtableBytes()
		logged := db.options.Durability == None || db.logs.fits(dataBytes)
		switch {
		case db.logs.failed():
			if err := db.awaitTables(); err != nil {
				return nil, err
			}
		case fits && m.room() < room: // it is empty
			db.enlargeMemtable(room)
		case fits && logged:
			if !db.mu.pacer.due(m.used()) || !db.slowDown(m.used()) {
				return m, nil
			}
		case fits && (m.empty() || db.logs.current() == nil):
			// No log yet, or one too small for this record.
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

// memtableBytes returns the size of a full memtable.
func (db *DB) memtableBytes() int64 {
	return db.options.Budget.memtableBytes(db.options.MemtableBytes)
}

// mostMemtableBytes returns the maximum memory of a full memtable. Replaced slot
// tables, unused slots and the sorted order are not part of its size; with small
// entries they are up to half of it.
func (db *DB) mostMemtableBytes() int64 { return db.memtableBytes() / 2 * 3 }

// oversized reports whether the current memtable takes more memory than allowed: it
// holds a large batch, or the store's share of the budget has shrunk. A new memtable is
// never oversized: the region that it reuses is at most as large as the share
// (db.memory.Limit), and its slots are at most half of it (expectedKeys). Called under
// mu.
func (db *DB) oversized() bool {
	return int64(db.current.Load().memtables[0].versions.bytes) > db.mostMemtableBytes()
}

// adaptToBudget adapts the store to a changed memtable size. It releases spare memory and
// wakes the flusher, because a memtable may now be too large, and the merger, because
// the rule counts in memtables.
func (db *DB) adaptToBudget() {
	db.memory.Clear()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.changed.Broadcast()
}

// rotate replaces the current memtable and hands it to the flusher, or waits for the
// flusher if too many memtables wait. Called under mu; the caller must check its
// condition again.
func (db *DB) rotate() error {
	if len(db.current.Load().memtables)-1 >= maxWaiting {
		return db.awaitTables()
	}
	db.beginMemtable()
	return nil
}

// awaitTables waits for progress while memtables are flushed, or returns the error of
// the last flush. Called under mu.
func (db *DB) awaitTables() error {
	if err := db.mu.flush.err; err != nil {
		return errors.Wrap(err, "lsm: writes are stopped because memtables cannot be flushed")
	}
	start := time.Now()
	db.mu.changed.Wait()
	db.counters.stalls.Add(1)
	db.counters.stallNanos.Add(uint64(time.Since(start)))
	return nil
}

// beginMemtable creates a memtable; its log is created by its first write. Called under
// mu.
func (db *DB) beginMemtable() *memtable {
	v := db.current.Load()
	v.memtables[0].seal()
	keys := v.memtables[0].expectedKeys(db.memtableBytes())
	fresh := newMemtableFor(keys, &db.memory, db.options.MemtableBytes, db.options.Budget)
	memtables := append([]*memtable{fresh}, v.memtables...)
	db.logs.endCurrent()
	db.mu.pacer.restart()
	db.setView(memtables, v.tables).retire() // not the last reference to any mapping: the new view lists all of them
	return fresh
}

// enlargeMemtable replaces the current memtable, which is empty, by one with at least
// room bytes. Called under mu.
func (db *DB) enlargeMemtable(room int64) *memtable {
	v := db.current.Load()
	large := newMemtable(&db.memory, room, db.options.Budget)
	large.log = v.memtables[0].log
	memtables := append([]*memtable{large}, v.memtables[1:]...)
	db.setView(memtables, v.tables).retire() // as above
	return large
}

// readOnlyError returns the error for a write to a read-only DB.
func (db *DB) readOnlyError() error {
	if db.current.Load() == nil {
		return ErrClosed
	}
	return ErrReadOnly
}
