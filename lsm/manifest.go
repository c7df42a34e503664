package lsm

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/invariants"
	"docstore/internal/vfs"
	"docstore/lsm/internal/table"
)

// The manifest lists the files of the store. It is replaced atomically by a rename,
// which is the commit point of every flush and merge; docs/format/manifest.md:
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

	// maxManifestTables is far above the number of tables that the planner permits.
	maxManifestTables = 1 << 16
)

var manifestMagic = [8]byte{'L', 'S', 'M', 'm', 'a', 'n', 'i', 'f'}

type manifest struct {
	id           table.StoreID
	nextNumber   uint64        // above that of every file that the store has had
	lastSequence uint64        // last write in tables; the logs continue from there
	firstLog     uint64        // logs with lower numbers are obsolete
	tables       []table.Facts // newest first
}

// fieldsOf returns the numbers of a table's record, in their order.
func fieldsOf(f *table.Facts) [8]*uint64 {
	return [...]*uint64{
		&f.Number, &f.FileBytes, &f.Entries, &f.Tombstones,
		&f.KeyBytes, &f.ValueBytes, &f.FirstSequence, &f.LastSequence,
	}
}

func (m *manifest) encode() []byte {
	b := make([]byte, manifestHeaderBytes, manifestHeaderBytes+len(m.tables)*manifestTableBytes)
	copy(b, manifestMagic[:])
	binary.LittleEndian.PutUint16(b[12:], manifestVersion)
	binary.LittleEndian.PutUint16(b[14:], kindManifest)
	copy(b[16:], m.id[:])
	binary.LittleEndian.PutUint64(b[32:], m.nextNumber)
	binary.LittleEndian.PutUint64(b[40:], m.lastSequence)
	binary.LittleEndian.PutUint64(b[48:], m.firstLog)
	binary.LittleEndian.PutUint32(b[56:], uint32(len(m.tables)))
	for i := range m.tables {
		t := &m.tables[i]
		for _, field := range fieldsOf(t) {
			b = binary.LittleEndian.AppendUint64(b, *field)
		}
		b = binary.LittleEndian.AppendUint32(b, t.FooterCRC)
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], checksum.Of(b[12:]))
	if invariants.Enabled {
		if _, fault := decodeManifest(b); fault != nil { // for example overlapping tables
			panic("lsm: inconsistent manifest: " + fault.Reason)
		}
	}
	return b
}

// decodeManifest decodes a manifest and checks its consistency.
func decodeManifest(b []byte) (manifest, *table.FormatFault) {
	var m manifest
	if len(b) < manifestHeaderBytes {
		return m, &table.FormatFault{Reason: fmt.Sprintf("%d bytes, want at least %d", len(b), manifestHeaderBytes)}
	}
	if fault := table.CheckPreamble(b, manifestMagic, manifestVersion, kindManifest); fault != nil {
		return m, fault
	}
	copy(m.id[:], b[16:])
	m.nextNumber = binary.LittleEndian.Uint64(b[32:])
	m.lastSequence = binary.LittleEndian.Uint64(b[40:])
	m.firstLog = binary.LittleEndian.Uint64(b[48:])
	count := uint64(binary.LittleEndian.Uint32(b[56:]))
	rest := b[manifestHeaderBytes:]
	if count > maxManifestTables || count*manifestTableBytes != uint64(len(rest)) {
		return m, &table.FormatFault{Reason: fmt.Sprintf("%d tables in %d bytes", count, len(rest))}
	}
	m.tables = make([]table.Facts, count)
	newer := m.lastSequence
	for i := range m.tables {
		t, record := &m.tables[i], rest[i*manifestTableBytes:]
		for j, field := range fieldsOf(t) {
			*field = binary.LittleEndian.Uint64(record[8*j:])
		}
		t.FooterCRC = binary.LittleEndian.Uint32(record[64:])
		if t.Number >= m.nextNumber || t.FirstSequence > t.LastSequence || t.LastSequence > newer || t.FirstSequence == 0 {
			return m, &table.FormatFault{Reason: fmt.Sprintf("table %d is inconsistent with the rest", t.Number)}
		}
		newer = t.FirstSequence - 1
	}
	return m, nil
}

// readManifest reads a store's manifest. The error is fs.ErrNotExist if there is none.
func readManifest(fsys vfs.FS, path string) (manifest, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return manifest{}, errors.Wrap(err, "lsm: read the manifest")
	}
	m, fault := decodeManifest(b)
	switch {
	case fault == nil:
		return m, nil
	case fault.Newer:
		return manifest{}, errors.Wrapf(ErrNewerVersion, "%s", path)
	}
	return manifest{}, errors.WithStack(&CorruptionError{Path: path, Reason: fault.Reason})
}

// write durably replaces the manifest. After an error the file has the old or the new
// contents.
func (m *manifest) write(fsys vfs.FS, path string) error {
	return errors.Wrap(vfs.WriteFileAtomic(fsys, path, m.encode()), "lsm: write the manifest")
}

// sameFiles reports whether two manifests list the same tables and logs.
func (m *manifest) sameFiles(o *manifest) bool {
	return m.id == o.id && slices.Equal(m.tables, o.tables) && m.firstLog == o.firstLog
}

// describes reports whether a view has exactly the tables of the manifest.
func (m *manifest) describes(v *view) bool {
	return slices.EqualFunc(m.tables, v.tables, func(facts table.Facts, t *table.Reader) bool { return facts == t.Facts })
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
