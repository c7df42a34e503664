package lsm

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/invariants"
	"docstore/internal/vfs"
)

// The manifest says what makes up the store. It is written whole and put in the
// place of the old one by a rename, which is the commit point of every flush and
// merge; docs/format/manifest.md draws it:
//
//	magic 8 | crc | version u16 | kind u16 = 1 | store id 16 | next number u64 |
//	last sequence u64 | first log u64 | count u32 | reserved u32 | count x table
//
//	table  number | file bytes | entries | tombstones | key bytes | value bytes |
//	       first sequence | last sequence, u64 each | footer crc | reserved u32
const (
	manifestVersion     = 0
	kindManifest        = 1
	manifestHeaderBytes = 64
	manifestTableBytes  = 8*8 + 2*4

	// maxManifestTables is far above what the planner lets come together.
	maxManifestTables = 1 << 16
)

var manifestMagic = [8]byte{'L', 'S', 'M', 'm', 'a', 'n', 'i', 'f'}

type manifest struct {
	id           storeID
	nextNumber   uint64       // above that of every file that the store ever had
	lastSequence uint64       // of what is in tables; the logs go on from there
	firstLog     uint64       // logs of lower numbers are obsolete
	tables       []tableFacts // newest first
}

func (f *tableFacts) fields() [8]*uint64 {
	return [...]*uint64{
		&f.number, &f.fileBytes, &f.entries, &f.tombstones,
		&f.keyBytes, &f.valueBytes, &f.firstSequence, &f.lastSequence,
	}
}

func (m *manifest) encode() []byte {
	b := make([]byte, manifestHeaderBytes, manifestHeaderBytes+len(m.tables)*manifestTableBytes)
	copy(b, manifestMagic[:])
	order.PutUint16(b[12:], manifestVersion)
	order.PutUint16(b[14:], kindManifest)
	copy(b[16:], m.id[:])
	order.PutUint64(b[32:], m.nextNumber)
	order.PutUint64(b[40:], m.lastSequence)
	order.PutUint64(b[48:], m.firstLog)
	order.PutUint32(b[56:], uint32(len(m.tables)))
	for i := range m.tables {
		t := &m.tables[i]
		for _, field := range t.fields() {
			b = order.AppendUint64(b, *field)
		}
		b = order.AppendUint32(b, t.footerCRC)
		b = order.AppendUint32(b, 0)
	}
	order.PutUint32(b[8:], checksum.Of(b[12:]))
	if invariants.Enabled {
		if _, fault := decodeManifest(b); fault != nil { // tables out of order, or overlapping
			panic("lsm: a manifest that cannot be true: " + fault.reason)
		}
	}
	return b
}

// decodeManifest reads a manifest and makes sure that it can be true.
func decodeManifest(b []byte) (manifest, *formatFault) {
	var m manifest
	if len(b) < manifestHeaderBytes {
		return m, &formatFault{reason: fmt.Sprintf("%d bytes, want at least %d", len(b), manifestHeaderBytes)}
	}
	if fault := checkPreamble(b, manifestMagic, manifestVersion, kindManifest); fault != nil {
		return m, fault
	}
	copy(m.id[:], b[16:])
	m.nextNumber = order.Uint64(b[32:])
	m.lastSequence = order.Uint64(b[40:])
	m.firstLog = order.Uint64(b[48:])
	count := uint64(order.Uint32(b[56:]))
	rest := b[manifestHeaderBytes:]
	if count > maxManifestTables || count*manifestTableBytes != uint64(len(rest)) {
		return m, &formatFault{reason: fmt.Sprintf("%d tables in %d bytes", count, len(rest))}
	}
	m.tables = make([]tableFacts, count)
	newer := m.lastSequence
	for i := range m.tables {
		t, record := &m.tables[i], rest[i*manifestTableBytes:]
		for j, field := range t.fields() {
			*field = order.Uint64(record[8*j:])
		}
		t.footerCRC = order.Uint32(record[64:])
		if t.number >= m.nextNumber || t.firstSequence > t.lastSequence || t.lastSequence > newer || t.firstSequence == 0 {
			return m, &formatFault{reason: fmt.Sprintf("table %d contradicts the rest", t.number)}
		}
		newer = t.firstSequence - 1
	}
	return m, nil
}

// readManifest reads the manifest of a store; fs.ErrNotExist if there is none.
func readManifest(fsys vfs.FS, path string) (manifest, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return manifest{}, errors.Wrap(err, "lsm: read the manifest")
	}
	m, fault := decodeManifest(b)
	switch {
	case fault == nil:
		return m, nil
	case fault.newer:
		return manifest{}, errors.Wrapf(ErrNewerVersion, "%s", path)
	}
	return manifest{}, errors.WithStack(&CorruptionError{Path: path, Reason: fault.reason})
}

// write makes m the manifest of the directory, durably. After an error the old
// one or the new one may be there.
func (m *manifest) write(fsys vfs.FS, path string) error {
	return errors.Wrap(vfs.WriteFileAtomic(fsys, path, m.encode()), "lsm: write the manifest")
}

// sameTables tells whether two manifests name the same tables.
func (m *manifest) sameTables(o *manifest) bool {
	return slices.Equal(m.tables, o.tables)
}

// sameFiles tells whether two manifests name the same tables and logs.
func (m *manifest) sameFiles(o *manifest) bool {
	return m.id == o.id && m.sameTables(o) && m.firstLog == o.firstLog
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
