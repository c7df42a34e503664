package lsm

import (
	"bytes"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Check reads all files of the store and verifies everything that can be: each
// checksum, the order of keys and sequence numbers, all counts and bounds, that
// the filters deny no key, that the logs follow on the tables. It goes on beside
// reads and writes and reports all that is wrong, joined, each as a
// *CorruptionError where it is one.
func (db *DB) Check() error { return db.CheckWith(nil) }

// CheckWith is Check that tells how many bytes of the tables' it has verified, which is
// nearly all of its work, some hundred times for each table. progress may be nil.
func (db *DB) CheckWith(progress func(done, total int64)) error {
	present, err := db.acquire()
	if err != nil {
		return err
	}
	v := present.tablesOnly()
	present.unref()
	defer v.retire()

	var found []error
	var before, total int64
	for _, t := range v.tables {
		total += int64(len(t.data))
	}
	for _, t := range v.tables {
		if db.isClosing() {
			return ErrClosed
		}
		size := int64(len(t.data))
		found = append(found, db.checkTable(t, func(share float64) {
			if progress != nil {
				progress(before+int64(share*float64(size)), total)
			}
		}))
		before += size
	}
	found = append(found, db.checkFilters())
	m, err := readManifest(db.env.fs, db.env.path(manifestName))
	if err != nil || db.options.Follow {
		return errors.Join(append(found, err)...)
	}
	names, err := db.env.fs.List(db.env.dir)
	if err != nil {
		return errors.Join(append(found, errors.Wrap(err, "lsm: list the store"))...)
	}
	return errors.Join(append(found, db.checkLogs(logsOf(names, m.firstLog))...)...)
}

// checkTable verifies a table as if it had just been opened, and tells the share of it
// that has been. It reads by way of the table's mapping: beside a writer its name may
// have gone.
func (db *DB) checkTable(t *table, tell func(share float64)) (err error) {
	r := &tableReader{path: t.path, facts: t.facts, data: t.data}
	if fault := vfs.Guard(func() { err = r.load(db.env.id) }); fault != nil {
		err = errors.Wrapf(fault, "lsm: read %s", r.path)
	}
	if err != nil {
		return err
	}
	filter, err := r.openFilter()
	if err != nil {
		return r.corrupt(int(r.footer.filter.offset), "filter: %v", err)
	}
	// With room for all pages none may be left out.
	manager := bloom.NewManager(int64(r.footer.filter.length) + filter.Stats().IndexBytes)
	defer func() { _ = manager.Update() }()
	if err := manager.Update(filter); err != nil {
		return r.corrupt(int(r.footer.filter.offset), "filter: %v", err)
	}
	if fault := vfs.Guard(func() { err = r.check(filter, tell) }); fault != nil {
		err = errors.Wrapf(fault, "lsm: read %s", r.path)
	}
	return err
}

// checkSteps is how often the verification of a table tells how far it is.
const checkSteps = 256

// check walks over all entries.
func (r *tableReader) check(filter *bloom.Filter, tell func(share float64)) error {
	if checksum.Of(r.section(r.footer.filter)) != r.footer.filter.crc {
		return r.corrupt(int(r.footer.filter.offset), "wrong checksum of the filter")
	}
	var got tableFacts
	var last []byte
	step := max(1, r.facts.entries/checkSteps)
	it := r.iterator()
	for ok := it.first(); ok; ok = it.next() {
		e := it.shown()
		key := e.key
		switch {
		case got.entries > 0 && bytes.Compare(last, key) >= 0:
			return r.corrupt(0, "keys out of order in block %d", it.index)
		case got.entries == 0 && !bytes.Equal(key, r.minKey):
			return r.corrupt(0, "the first key is not the least")
		case !filter.MayContain(bloom.HashKey(key), key):
			return r.corrupt(int(r.footer.filter.offset), "the filter denies a key of block %d", it.index)
		}
		last = append(last[:0], key...)
		got.entries++
		got.keyBytes += uint64(len(key))
		got.valueBytes += uint64(len(e.value))
		if e.tombstone {
			got.tombstones++
		}
		if got.entries%step == 0 {
			tell(min(1, float64(got.entries)/float64(r.facts.entries)))
		}
	}
	if err := it.err(); err != nil {
		return err
	}
	want := r.facts
	if got.entries != want.entries || got.tombstones != want.tombstones ||
		got.keyBytes != want.keyBytes || got.valueBytes != want.valueBytes {
		return r.corrupt(0, "%d entries, %d tombstones, %d bytes of keys and %d of values; want %d, %d, %d, %d",
			got.entries, got.tombstones, got.keyBytes, got.valueBytes,
			want.entries, want.tombstones, want.keyBytes, want.valueBytes)
	}
	return nil
}

// checkLogs reads the logs. A log that goes meanwhile had become a table.
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
