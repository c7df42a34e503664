package lsm

import (
	"context"
	"math"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/table"
)

// Check reads all files of the store and verifies them: checksums, the order of keys
// and sequence numbers, counts and bounds, that the filters exclude no key of their
// tables, and that the logs continue the tables. It can run concurrently with reads and
// writes. It joins all errors; damage is a *CorruptionError.
func (db *DB) Check() error { return db.CheckWith(nil) }

// CheckWith is Check with a progress callback, which receives the verified and the
// total bytes of tables. progress may be nil.
func (db *DB) CheckWith(progress func(done, total int64)) error {
	present, err := db.acquire()
	if err != nil {
		return err
	}
	v := present.tablesOnly()
	present.unref()
	defer v.retire()

	var found []error
	var done, total int64
	for _, t := range v.tables {
		total += int64(t.Facts.FileBytes)
	}
	for _, t := range v.tables {
		before := done
		found = append(found, t.Check(true, func(bytes int64) error {
			if done += bytes; progress != nil {
				progress(done, total)
			}
			return nil
		}))
		done = before + int64(t.Facts.FileBytes) // also if it is damaged
		if db.schedule.isClosing() {
			return ErrClosed
		}
	}
	found = append(found, db.filters.check())
	return errors.Join(append(found, db.checkManifest()...)...)
}

// checkManifest verifies the manifest and the logs after it.
func (db *DB) checkManifest() []error {
	m, err := readManifest(db.env.FS, db.env.path(manifestName))
	if err != nil || db.options.Follow {
		return []error{err}
	}
	names, err := db.env.FS.List(db.env.dir)
	if err != nil {
		return []error{errors.Wrap(err, "lsm: list the store")}
	}
	return db.checkLogs(logsOf(names, m.firstLog))
}

// checkLogs verifies the logs. A log that vanishes meanwhile became obsolete.
func (db *DB) checkLogs(numbers []uint64) (found []error) {
	for _, number := range numbers {
		r := &recovery{db: db, log: &logFile{number: number, path: db.env.path(logName(number))}}
		next := uint64(0)
		_, err := r.replay(func(sequence uint64, payload []byte) error {
			count, err := checkBatch(payload)
			if err != nil {
				return r.corrupt("record %d: %v", sequence, err)
			}
			if next != 0 && sequence != next {
				return r.corrupt("sequence number %d, want %d", sequence, next)
			}
			next = sequence + uint64(count)
			return nil
		})
		if err != nil && !isNotExist(err) {
			found = append(found, r.describe(err))
		}
	}
	return found
}

// Scrub is a Check for background use by a server. It reads at most bytesPerSecond,
// which must be positive, so it can take hours. It needs little memory and references
// one table at a time, so that merges can free space. It returns the first damage, as a
// *CorruptionError.
//
// It does not verify tables that are created or merged while it runs; the next Scrub
// does. It verifies only the checksums of filters, and not the filter scores. It reads
// tables through the page cache: damage on the disk is detected only after the kernel
// has dropped the page.
//
// verified is called with the bytes of tables verified since its last call. It may be
// nil.
func (db *DB) Scrub(ctx context.Context, bytesPerSecond int64, verified func(bytes int64)) error {
	rest := func(bytes int64) error {
		if verified != nil {
			verified(bytes)
		}
		return db.pause(ctx, time.Duration(float64(bytes)/float64(bytesPerSecond)*float64(time.Second)))
	}
	for number := uint64(math.MaxUint64); ; { // tables created meanwhile have higher numbers
		t, err := db.tableBelow(number)
		if err != nil {
			return err
		}
		if t == nil {
			return errors.Join(db.checkManifest()...)
		}
		number = t.Facts.Number
		err = t.Check(false, rest)
		t.Unref()
		if err != nil {
			return err
		}
	}
}

// pause waits for d, unless the store or ctx ends.
func (db *DB) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-db.schedule.closing:
		return ErrClosed
	}
}

// tableBelow returns a reference to the table with the greatest number below a number, nil
// if there is none.
func (db *DB) tableBelow(number uint64) (found *table.Reader, err error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	for _, t := range v.tables {
		if n := t.Facts.Number; n < number && (found == nil || n > found.Facts.Number) {
			found = t
		}
	}
	if found != nil {
		found.Ref()
	}
	return found, nil
}
