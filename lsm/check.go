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
// nearly all of its work. progress may be nil.
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
		total += int64(len(t.data))
	}
	for _, t := range v.tables {
		before := done
		found = append(found, db.checkTable(t, true, func(bytes int64) error {
			if done += bytes; progress != nil {
				progress(done, total)
			}
			return nil
		}))
		done = before + int64(len(t.data)) // also where it is damaged
		if db.isClosing() {
			return ErrClosed
		}
	}
	found = append(found, db.checkFilters())
	return errors.Join(append(found, db.checkManifest()...)...)
}

// checkManifest verifies the manifest and the logs that follow on it.
func (db *DB) checkManifest() []error {
	m, err := readManifest(db.env.fs, db.env.path(manifestName))
	if err != nil || db.options.Follow {
		return []error{err}
	}
	names, err := db.env.fs.List(db.env.dir)
	if err != nil {
		return []error{errors.Wrap(err, "lsm: list the store")}
	}
	return db.checkLogs(logsOf(names, m.firstLog))
}

// checkTable verifies a table as if it had just been opened, and tells of the bytes that
// have been; tell's error ends it. With keys it brings the whole filter into memory and
// makes sure that it denies no key. It reads by way of the table's mapping: beside a
// writer its name may have gone.
func (db *DB) checkTable(t *table, keys bool, tell func(bytes int64) error) error {
	r := &tableReader{path: t.path, facts: t.facts, data: t.data}
	if err := r.guard(func() error { return r.open(db.env.id) }); err != nil {
		return err
	}
	filter, err := r.openFilter()
	if err != nil {
		return r.filterFault(err)
	}
	mayContain := func([]byte) bool { return true }
	if keys {
		// With room for all pages none may be left out.
		manager := bloom.NewManager(int64(r.footer.filter.length) + filter.Stats().IndexBytes)
		defer func() { _ = manager.Update() }()
		if err := manager.Update(filter); err != nil {
			return r.filterFault(err)
		}
		mayContain = func(key []byte) bool { return filter.MayContain(bloom.HashKey(key), key) }
	}
	return r.check(mayContain, tell)
}

// filterFault turns an error of reading the filter into one that names the table.
func (r *tableReader) filterFault(err error) error {
	if errors.Is(err, vfs.ErrFault) {
		return r.failed(err)
	}
	return r.corrupt(int(r.footer.filter.offset), "filter: %v", err)
}

// check verifies the filter's bytes and all entries.
func (r *tableReader) check(mayContain func(key []byte) bool, tell func(bytes int64) error) error {
	told := teller{tell: tell}
	if err := r.guard(func() error { return r.checkFilterBytes(&told) }); err != nil {
		return err
	}
	var got tableFacts
	var last []byte
	block := -1
	it := r.iterator()
	defer it.release()
	for ok := it.first(); ok; ok = it.next() {
		if block != it.index {
			block = it.index
			if err := told.add(uint64(len(it.block.data))); err != nil {
				return err
			}
		}
		e := it.shown()
		key := e.key
		switch {
		case got.entries > 0 && bytes.Compare(last, key) >= 0:
			return r.corrupt(0, "keys out of order in block %d", it.index)
		case got.entries == 0 && !bytes.Equal(key, r.minKey):
			return r.corrupt(0, "the first key is not the least")
		case !mayContain(key):
			return r.corrupt(int(r.footer.filter.offset), "the filter denies a key of block %d", it.index)
		}
		last = append(last[:0], key...)
		got.entries++
		got.keyBytes += uint64(len(key))
		got.valueBytes += uint64(len(e.value))
		if e.tombstone {
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
	return told.end(uint64(len(r.data)))
}

// checkFilterBytes compares the checksum of the filter.
func (r *tableReader) checkFilterBytes(told *teller) error {
	rest, crc := r.section(r.footer.filter), uint32(0)
	for len(rest) > 0 {
		part := rest[:min(tellBytes, len(rest))]
		crc = checksum.Update(crc, part)
		if err := told.add(uint64(len(part))); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	if crc != r.footer.filter.crc {
		return r.corrupt(int(r.footer.filter.offset), "wrong checksum of the filter")
	}
	return nil
}

// tellBytes are verified between one tell and the next.
const tellBytes = 256 << 10

// teller tells of bytes that have been verified when they are enough.
type teller struct {
	tell          func(bytes int64) error
	told, pending uint64
}

func (t *teller) add(bytes uint64) error {
	if t.pending += bytes; t.pending < tellBytes {
		return nil
	}
	return t.flush()
}

// end tells of what is left of all.
func (t *teller) end(all uint64) error {
	t.pending = all - t.told
	return t.flush()
}

func (t *teller) flush() error {
	bytes := t.pending
	t.told, t.pending = t.told+bytes, 0
	return t.tell(int64(bytes))
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
