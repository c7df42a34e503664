package lsm

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/memtable"
	"docstore/wal"
)

// maxWaiting is the number of full memtables that may wait for a flush. Writers stall
// when there are more. With two, writing 4 million entries took the same processor time
// and 60 MB more memory.
const maxWaiting = 1

// memtableWriter writes to the current memtable and its log: it is the commitEnv of a
// DB. Its methods are called under committer.mu, except sync and flush.
//
// The current memtable is the first of the current view. It is replaced only by this
// type, so under both committer.mu and scheduler.mu; flushes remove older memtables under
// scheduler.mu.
type memtableWriter struct {
	db    *DB
	logs  logSet
	pacer pacer
	// due is set if the current memtable must be flushed before it is full: its log
	// failed or it takes too much memory. The flusher reads it under scheduler.mu and is woken
	// after it is set.
	due atomic.Bool
}

func (w *memtableWriter) current() *memtable.Memtable {
	return w.db.schedule.current.Load().memtables[0]
}

// prepare ensures that memtable and log have space for a batch. A memtable exceeds its
// size only for a batch that is larger than a memtable; it then holds nothing else.
func (w *memtableWriter) prepare(dataBytes, count int) (delay time.Duration, err error) {
	cost, room := int64(memtable.Cost(uint64(count), uint64(dataBytes))), memtable.WriteBytes(count, dataBytes)
	for {
		m := w.current()
		fits := m.Empty() || m.Used()+cost <= w.db.memtableBytes()
		logged := w.db.options.Durability == None || w.logs.fits(dataBytes)
		switch {
		case w.logs.failed():
			err = w.stall()
		case fits && m.Room() < room: // it is empty
			w.enlarge(room)
		case fits && logged:
			if !w.pacer.due(m.Used()) {
				return 0, nil
			}
			return w.delay(m.Used()), nil
		case fits && (m.Empty() || w.logs.current() == nil):
			// No log yet, or one too small for this record.
			err = w.newLog(dataBytes)
		default:
			err = w.rotate()
		}
		if err != nil {
			return 0, err
		}
	}
}

func (w *memtableWriter) write(c *commit, first uint64) error {
	log := w.logs.current()
	if log == nil { // Durability None
		return nil
	}
	return log.writer.Append(first, c.data)
}

func (w *memtableWriter) apply(c *commit, first uint64) error {
	m := w.current()
	if c.one.kind != 0 {
		m.Add(c.hash, c.one.key, memtable.Version{Sequence: first, Tombstone: c.one.kind == opDelete, Value: c.one.value})
	} else if err := applyBatch(m, c.data, first); err != nil {
		return err
	}
	w.checkSize()
	return nil
}

// sync syncs the logs.
func (w *memtableWriter) sync() error { return w.logs.sync() }

func (w *memtableWriter) flush() error { return w.db.Flush() }

// fail abandons the current logs: after a failed append or sync the contents of a log
// after its last valid record are unknown. So no other log may follow it, and writes
// wait until everything in memory is in tables and the logs are obsolete.
func (w *memtableWriter) fail(err error) error {
	err = errors.WithStack(fmt.Errorf("%w: %w", errLogFailed, err))
	if w.logs.fail(err, w.db.schedule.peekNumber()) {
		w.db.env.Logger.Error("a log failed; writes wait until memtables are flushed", "dir", w.db.env.dir, "error", err)
		w.requestFlush()
	}
	return err
}

// rotate replaces the current memtable and hands it to the flusher, unless too many
// memtables wait.
func (w *memtableWriter) rotate() error {
	if len(w.db.schedule.current.Load().memtables)-1 >= maxWaiting {
		return w.stall()
	}
	w.begin()
	return nil
}

// stall makes the caller wait while memtables are flushed, or returns the error of the
// last flush.
func (w *memtableWriter) stall() error {
	if err := w.db.schedule.flushError(); err != nil {
		return errors.Wrap(err, "lsm: writes are stopped because memtables cannot be flushed")
	}
	return errStalled
}

// begin creates a memtable; its log is created by its first write.
func (w *memtableWriter) begin() *memtable.Memtable {
	last := w.current()
	last.Seal()
	fresh := memtable.New(&w.db.memory, w.db.options.MemtableBytes, last.ExpectedKeys(w.db.memtableBytes()), w.db.options.Budget.account())
	w.logs.endCurrent()
	w.pacer.restart()
	w.due.Store(false)
	w.db.schedule.replaceMemtables(func(memtables []*memtable.Memtable) []*memtable.Memtable {
		return append([]*memtable.Memtable{fresh}, memtables...)
	})
	return fresh
}

// enlarge replaces the current memtable, which is empty, by one with at least room
// bytes.
func (w *memtableWriter) enlarge(room int64) *memtable.Memtable {
	large := memtable.New(&w.db.memory, room, 0, w.db.options.Budget.account())
	large.Log = w.current().Log
	w.db.schedule.replaceMemtables(func(memtables []*memtable.Memtable) []*memtable.Memtable {
		return append([]*memtable.Memtable{large}, memtables[1:]...)
	})
	return large
}

// checkSize requests a flush if the current memtable takes more memory than allowed: it
// holds a large batch, or the store's share of the budget has shrunk. A new memtable
// never does: the region that it reuses is at most as large as the share
// (db.memory.Limit), and its slots are at most half of it (ExpectedKeys).
func (w *memtableWriter) checkSize() {
	if w.current().OwnBytes() > w.db.mostMemtableBytes() && !w.due.Load() {
		w.requestFlush()
	}
}

func (w *memtableWriter) requestFlush() {
	w.due.Store(true)
	w.db.schedule.wake()
}

// newLog begins a log with space for a memtable, or for one larger record.
func (w *memtableWriter) newLog(recordBytes int) error {
	number := w.db.schedule.beginLog(w.current())
	path := w.db.env.path(logName(number))
	err := w.logs.begin(path, number, max(w.db.memtableBytes(), wal.CapacityFor(recordBytes)))
	if err != nil {
		if gone := w.db.env.FS.Remove(path); gone == nil || isNotExist(gone) {
			w.db.schedule.returnNumber(number) // the next attempt then fails with the same error message
		}
	}
	return err
}

// pacer tracks the state of the write delay. Guarded by committer.mu.
type pacer struct {
	begun     time.Time // when the current memtable was created
	nextCheck int64     // fill of the memtable at which a writer next checks whether to slow down
}

// restart begins a memtable.
func (p *pacer) restart() { p.begun, p.nextCheck = time.Now(), 0 }

// due reports whether a writer should call delay at this fill of the memtable.
func (p *pacer) due(filled int64) bool { return filled >= p.nextCheck }

// delay returns the delay of the next write, given the fill of the memtable in bytes.
func (w *memtableWriter) delay(filled int64) time.Duration {
	full := w.db.memtableBytes()
	w.pacer.nextCheck = filled + full/paceSteps
	p := w.db.schedule.pressure()
	p.filled, p.elapsed = float64(filled)/float64(full), time.Since(w.pacer.begun)
	return p.delay()
}
