package lsm

import (
	"fmt"

	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/memtable"
	"docstore/wal"
)

// errGap ends the replay of a log whose next record does not follow the recovered
// records.
var errGap = errors.New("lsm: gap in the sequence of writes")

// recovery replays the logs into memtables.
type recovery struct {
	db *DB
	// flushOldest flushes the oldest memtable, which bounds memory; nil if read-only.
	flushOldest func() error
	flushed     uint64 // sequence number up to which all writes are in tables
	log         *logFile
	inLog       int // records read from log
}

// replayLogs applies the writes of the logs to memtables. It stops at the first gap in
// their sequence: a power cut can lose the tail of one log and keep the next. It drops
// the logs after the gap, so that no later Open takes them for the continuation of
// newer writes.
//
// A sync mark in a log proves that all older logs were durable. So a mark after the gap
// proves that durable writes are missing.
func (db *DB) replayLogs(numbers []uint64, flushOldest func() error) error {
	r := &recovery{db: db, flushOldest: flushOldest, flushed: db.commit.visible.Load()}
	gap := false
	for _, number := range numbers {
		r.log = &logFile{number: number, path: db.env.path(logName(number))}
		r.inLog = 0
		db.writer.logs.add(r.log)
		var result wal.Result
		var err error
		if !gap {
			result, err = r.replay(r.record)
			gap = errors.Is(err, errGap)
		}
		if gap {
			if result, err = r.replay(func(uint64, []byte) error { return nil }); err == nil && result.Synced > 0 {
				err = errGap
			}
		}
		r.log.bytes = result.ValidBytes
		if err != nil {
			return r.describe(err)
		}
		if gap {
			db.env.Logger.Warn("the newest writes were lost in a crash; a later log is dropped",
				"log", r.log.path, "after", db.commit.visible.Load())
		}
	}
	if gap && flushOldest != nil {
		return db.dropLogs(flushOldest)
	}
	return nil
}

// replay reads the log.
func (r *recovery) replay(fn func(sequence uint64, payload []byte) error) (wal.Result, error) {
	return wal.Replay(r.log.path, &wal.Options{FS: r.db.env.FS, Number: r.log.number, Owner: r.db.env.Store[:]}, fn)
}

// record applies a record of the log.
func (r *recovery) record(sequence uint64, payload []byte) error {
	db := r.db
	count, err := checkBatch(payload)
	if err != nil {
		return r.corrupt("record %d: %v", sequence, err)
	}
	switch want := db.commit.visible.Load() + 1; {
	case sequence > want && r.inLog == 0:
		return errGap
	case sequence+uint64(count)-1 <= r.flushed:
		// An earlier recovery filled several memtables from this log, and only some
		// were flushed.
		r.inLog++
		return nil
	case sequence != want:
		return r.corrupt("sequence number %d, want %d", sequence, want)
	}
	m := db.schedule.current.Load().memtables[0]
	cost := int64(memtable.Cost(uint64(count), uint64(len(payload))))
	if !m.Empty() && m.Used()+cost > db.memtableBytes() {
		if m, err = r.nextMemtable(); err != nil {
			return err
		}
	}
	db.commit.advance(func() { // a Budget may measure the memtable meanwhile
		if room := memtable.WriteBytes(count, len(payload)); m.Room() < room {
			m = db.writer.enlarge(room)
		}
		if m.Log == 0 {
			m.Log = r.log.number
		}
		if err = applyBatch(m, payload, sequence); err == nil {
			db.commit.visible.Store(sequence + uint64(count) - 1)
		}
	})
	if err != nil {
		return r.corrupt("record %d: %v", sequence, err)
	}
	r.inLog++
	return nil
}

// nextMemtable creates a memtable, and flushes one first if too many wait.
func (r *recovery) nextMemtable() (m *memtable.Memtable, err error) {
	db := r.db
	if r.flushOldest != nil && len(db.schedule.current.Load().memtables)-1 >= maxWaiting {
		if err := r.flushOldest(); err != nil {
			return nil, err
		}
	}
	db.commit.advance(func() { m = db.writer.begin() })
	return m, nil
}

// dropLogs flushes all memtables and makes all logs obsolete.
func (db *DB) dropLogs(flushOldest func() error) error {
	if !db.schedule.current.Load().memtables[0].Empty() {
		if _, err := (&recovery{db: db, flushOldest: flushOldest}).nextMemtable(); err != nil {
			return err
		}
	}
	for len(db.schedule.current.Load().memtables) > 1 {
		if err := flushOldest(); err != nil {
			return err
		}
	}
	return db.installTable(nil, nil, nil)
}

func (r *recovery) corrupt(format string, args ...any) error {
	return errors.WithStack(&CorruptionError{Path: r.log.path, Reason: fmt.Sprintf(format, args...)})
}

// describe converts an error of package wal.
func (r *recovery) describe(err error) error {
	var damage *wal.CorruptionError
	switch {
	case errors.As(err, &damage):
		return errors.WithStack(&CorruptionError{Path: damage.Path, Offset: damage.Offset, Reason: damage.Reason})
	case errors.Is(err, wal.ErrNewerVersion):
		return errors.WithStack(fmt.Errorf("%w: %w", ErrNewerVersion, err))
	case errors.Is(err, errGap):
		return r.corrupt("begins after write %d, but the writes between were synced", r.db.commit.visible.Load())
	}
	return err
}
