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
func (db *DB) Check() error {
	present, err := db.acquire()
	if err != nil {
		return err
	}
	v := present.tablesOnly()
	present.unref()
	defer v.unref()

	var found []error
	for _, t := range v.tables {
		if db.isClosing() {
			return ErrClosed
		}
		found = append(found, db.checkTable(t))
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

// checkTable verifies a table as if it had just been opened. It reads by way of
// the table's mapping: beside a writer its name may have gone.
func (db *DB) checkTable(t *table) (err error) {
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
	if fault := vfs.Guard(func() { err = r.check(filter) }); fault != nil {
		err = errors.Wrapf(fault, "lsm: read %s", r.path)
	}
	return err
}

// check walks over all entries.
func (r *tableReader) check(filter *bloom.Filter) error {
	if checksum.Of(r.section(r.footer.filter)) != r.footer.filter.crc {
		return r.corrupt(int(r.footer.filter.offset), "wrong checksum of the filter")
	}
	var got tableFacts
	var last []byte
	it := r.iterator()
	for ok := it.first(); ok; ok = it.next() {
		key := it.key()
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
		got.valueBytes += uint64(len(it.value()))
		if it.tombstone() {
			got.tombstones++
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
