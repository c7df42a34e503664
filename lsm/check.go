package lsm

import (
	"github.com/cockroachdb/errors"
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
	found = append(found, db.checkFilters())
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
