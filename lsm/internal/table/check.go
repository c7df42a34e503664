package table

import (
	"bytes"
	"io/fs"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Check verifies a table as if it had just been opened. It passes the number of
// verified bytes to report, whose error ends it. With keys it loads the whole filter and
// checks that it excludes no key. It reads the table's existing mapping, because a
// concurrent writer may have removed its name.
func (r *Reader) Check(keys bool, report func(bytes int64) error) error {
	r = &Reader{env: r.env, Path: r.Path, Facts: r.Facts, data: r.data} // opened below
	// The mapping has zeros for lost bytes at the end.
	if info, err := r.env.FS.Stat(r.Path); err == nil && info.Size != int64(len(r.data)) {
		return r.corrupt(len(r.data), "file of %d bytes, want %d", info.Size, len(r.data))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r.failed(err)
	}
	if err := r.Guard(r.open); err != nil {
		return err
	}
	filter, err := r.openFilter()
	if err != nil {
		return r.filterFault(err)
	}
	mayContain := func([]byte) bool { return true }
	if keys {
		// With memory for all pages, every page must load.
		manager := bloom.NewManager(int64(r.footer.filter.length) + filter.Stats().IndexBytes)
		defer func() { _ = manager.Update() }()
		if err := manager.Update(filter); err != nil {
			return r.filterFault(err)
		}
		mayContain = func(key []byte) bool { return filter.MayContain(bloom.HashKey(key), key) }
	}
	return r.checkEntries(mayContain, report)
}

// filterFault converts an error of reading the filter to one that names the table.
func (r *Reader) filterFault(err error) error {
	if errors.Is(err, vfs.ErrFault) {
		return r.failed(err)
	}
	return r.corrupt(int(r.footer.filter.offset), "filter: %v", err)
}

// checkEntries verifies the bytes of the filter and all entries.
func (r *Reader) checkEntries(mayContain func(key []byte) bool, report func(bytes int64) error) error {
	reporter := progressReporter{report: report}
	if err := r.Guard(func() error { return r.checkFilterBytes(&reporter) }); err != nil {
		return err
	}
	var got Facts
	var last []byte
	block := -1
	it := r.iterator()
	defer it.Release()
	for ok := it.First(); ok; ok = it.Next() {
		if block != it.index {
			block = it.index
			if err := reporter.add(uint64(len(it.block.data))); err != nil {
				return err
			}
		}
		e := it.Current()
		key := e.Key
		switch {
		case got.Entries > 0 && bytes.Compare(last, key) >= 0:
			return r.corrupt(0, "keys out of order in block %d", it.index)
		case got.Entries == 0 && !bytes.Equal(key, r.minKey):
			return r.corrupt(0, "the first key is not the smallest")
		case !mayContain(key):
			return r.corrupt(int(r.footer.filter.offset), "the filter excludes a key of block %d", it.index)
		}
		last = append(last[:0], key...)
		got.Entries++
		got.KeyBytes += uint64(len(key))
		got.ValueBytes += uint64(len(e.Value))
		if e.Tombstone {
			got.Tombstones++
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	want := r.Facts
	if got.Entries != want.Entries || got.Tombstones != want.Tombstones ||
		got.KeyBytes != want.KeyBytes || got.ValueBytes != want.ValueBytes {
		return r.corrupt(0, "%d entries, %d tombstones, %d bytes of keys and %d of values; want %d, %d, %d, %d",
			got.Entries, got.Tombstones, got.KeyBytes, got.ValueBytes,
			want.Entries, want.Tombstones, want.KeyBytes, want.ValueBytes)
	}
	return reporter.end(uint64(len(r.data)))
}

// checkFilterBytes verifies the checksum of the filter.
func (r *Reader) checkFilterBytes(reporter *progressReporter) error {
	rest, crc := r.section(r.footer.filter), uint32(0)
	for len(rest) > 0 {
		part := rest[:min(progressBytes, len(rest))]
		crc = checksum.Update(crc, part)
		if err := reporter.add(uint64(len(part))); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	if crc != r.footer.filter.crc {
		return r.corrupt(int(r.footer.filter.offset), "wrong checksum of the filter")
	}
	return nil
}

// progressBytes is the minimum number of verified bytes between two progress reports.
const progressBytes = 256 << 10

// progressReporter batches reports of verified bytes.
type progressReporter struct {
	report            func(bytes int64) error
	reported, pending uint64
}

func (p *progressReporter) add(bytes uint64) error {
	if p.pending += bytes; p.pending < progressBytes {
		return nil
	}
	return p.flush()
}

// end reports the rest of all bytes.
func (p *progressReporter) end(all uint64) error {
	p.pending = all - p.reported
	return p.flush()
}

func (p *progressReporter) flush() error {
	bytes := p.pending
	p.reported, p.pending = p.reported+bytes, 0
	return p.report(int64(bytes))
}
