package docservice

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/queue"
)

// verifiedFiles is what the background pass knows about the files of a queue. What
// it found sound it keeps in a file, so that it need not read thousands of segments
// again after a restart. Little-endian:
//
//	offset  0     4        12         14     16          32     36          40
//	        +-----+--------+----------+------+-----------+------+-----------+-------
//	        | crc | magic  | version  | zero | queue     | rows | zero      | rows
//	        | u32 | [8]    | u16, 0   | u16  | [16]      | u32  | u32       | 32 each
//	        +-----+--------+----------+------+-----------+------+-----------+-------
//
//	row     0           4            8        16       24            32
//	        +-----------+------------+--------+--------+-------------+
//	        | segment   | generation | bytes  | inode  | modified,   |
//	        | u32       | u32        | u64    | u64    | Unix ns i64 |
//	        +-----------+------------+--------+--------+-------------+
//
// The crc covers all that follows it; segments ascend. A rewrite has the number of
// the first segment that it replaces, and a generation. A file counts as the one that
// was verified if it has these, size, inode and time of modification of a row;
// the device is left out, as many file systems get another number each time they
// are mounted. Before a file is noted it is synced: otherwise a loss of power could
// take bytes of it and leave the note. One that cannot be is as good as damaged: after
// a failed sync none that follows tells whether the disk has its bytes.
//
// A file of results that is damaged, of another queue or of another version is as
// good as none: everything is verified again.
type verifiedFiles struct {
	fs      vfs.FS
	path    string
	seen    map[segmentKey]finding
	changes int // of what is to be kept since it was saved
}

// verifiedFile is a version of a segment's file that was read to its last byte.
type verifiedFile struct {
	bytes    int64
	inode    uint64
	modified int64 // Unix nanoseconds
}

// finding is what was found in a file.
type finding struct {
	verifiedFile
	sound   bool
	durable bool // the file was synced, so that this may be kept
	// refused is why it could not be, which it must not be tried to again.
	refused error
}

const (
	verifiedMagic       = "DSTVRFD\x00"
	verifiedVersion     = 0
	verifiedHeaderBytes = 40
	verifiedRowBytes    = 32
	// maxVerifiedRows is more than a queue of 4 GiB segments can have on any disk.
	maxVerifiedRows = 1 << 20
	// verifiedSaveInterval is after how many sound segments the results are saved
	// in the middle of a pass: no more have to be read again after a crash.
	verifiedSaveInterval = 64
)

var errVerifiedRefused = errors.New("docservice: the results of earlier verifications are of no use")

func newVerifiedFiles(files vfs.FS, path string) *verifiedFiles {
	return &verifiedFiles{fs: files, path: path, seen: make(map[segmentKey]finding)}
}

func (f segmentFile) verified() verifiedFile {
	return verifiedFile{bytes: f.version.bytes, inode: f.version.file.Inode, modified: f.version.modified.UnixNano()}
}

// knows tells whether this very file was read already, whatever was found.
func (v *verifiedFiles) knows(f segmentFile) bool {
	return v.seen[f.segmentKey].verifiedFile == f.verified()
}

// isSound tells whether this very file was read and nothing was wrong.
func (v *verifiedFiles) isSound(f segmentFile) bool { return v.knows(f) && v.seen[f.segmentKey].sound }

// note takes down what was found in a file, and makes a sound one durable. The error
// is that the disk does not take its bytes.
func (v *verifiedFiles) note(f segmentFile, sound bool) error {
	found := finding{verifiedFile: f.verified(), sound: sound}
	if v.knows(f) {
		found.refused = v.seen[f.segmentKey].refused
	}
	if sound && found.refused == nil {
		found.durable, found.refused = syncFile(v.fs, f.path)
	}
	if found.durable || v.seen[f.segmentKey].durable {
		v.changes++
	}
	v.seen[f.segmentKey] = found
	return found.refused
}

// syncFile makes a file durable that somebody else has written. One that cannot be
// opened is not, for whatever reason, but then no sync has failed.
func syncFile(files vfs.FS, path string) (durable bool, err error) {
	file, opening := files.Open(path)
	if opening != nil {
		return false, nil
	}
	defer file.Close()
	err = file.Sync()
	return err == nil, err
}

// retain forgets files that are not there any more.
func (v *verifiedFiles) retain(files []segmentFile) {
	there := make(map[segmentKey]bool, len(files))
	for _, f := range files {
		there[f.segmentKey] = true
	}
	maps.DeleteFunc(v.seen, func(key segmentKey, _ finding) bool { return !there[key] })
}

// load reads what an earlier run has found. fs.ErrNotExist: nothing as yet.
func (v *verifiedFiles) load(id [16]byte) error {
	info, err := v.fs.Stat(v.path)
	if err != nil {
		return err
	}
	if info.Size > verifiedHeaderBytes+maxVerifiedRows*verifiedRowBytes {
		return errors.Wrapf(errVerifiedRefused, "%s has %d bytes", v.path, info.Size)
	}
	content, err := vfs.ReadFile(v.fs, v.path)
	if err != nil {
		return err
	}
	seen, err := parseVerified(content, id)
	if err != nil {
		return errors.Wrapf(errVerifiedRefused, "%s: %v", v.path, err)
	}
	v.seen = seen
	return nil
}

// save writes which files of the queue were found sound, durably, if that has
// changed.
func (v *verifiedFiles) save(id [16]byte) error {
	if v.changes == 0 {
		return nil
	}
	if err := vfs.WriteFileAtomic(v.fs, v.path, v.append(nil, id)); err != nil {
		return err
	}
	v.changes = 0
	return nil
}

func (v *verifiedFiles) append(dst []byte, id [16]byte) []byte {
	start, rows := len(dst), uint32(0)
	dst = append(dst, make([]byte, verifiedHeaderBytes)...)
	for _, key := range slices.SortedFunc(maps.Keys(v.seen), compareKeys) {
		f := v.seen[key]
		if !f.durable || rows == maxVerifiedRows {
			continue
		}
		rows++
		dst = binary.LittleEndian.AppendUint32(dst, uint32(key.id))
		dst = binary.LittleEndian.AppendUint32(dst, key.generation)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(f.bytes))
		dst = binary.LittleEndian.AppendUint64(dst, f.inode)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(f.modified))
	}
	b := dst[start:]
	copy(b[4:], verifiedMagic)
	binary.LittleEndian.PutUint16(b[12:], verifiedVersion)
	copy(b[16:], id[:])
	binary.LittleEndian.PutUint32(b[32:], rows)
	binary.LittleEndian.PutUint32(b, checksum.Of(b[4:]))
	return dst
}

// parseVerified reads what append wrote for the queue with the id.
func parseVerified(b []byte, id [16]byte) (map[segmentKey]finding, error) {
	if len(b) < verifiedHeaderBytes || !bytes.Equal(b[4:12], []byte(verifiedMagic)) {
		return nil, errors.New("no results of verifications")
	}
	if got, want := checksum.Of(b[4:]), binary.LittleEndian.Uint32(b); got != want {
		return nil, fmt.Errorf("the checksum is %08x, its bytes have %08x", want, got)
	}
	rows := binary.LittleEndian.Uint32(b[32:])
	switch version := binary.LittleEndian.Uint16(b[12:]); {
	case version != verifiedVersion:
		return nil, fmt.Errorf("version %d, this program reads %d", version, verifiedVersion)
	case !bytes.Equal(b[16:32], id[:]):
		return nil, errors.New("they are of another queue")
	case uint64(len(b)-verifiedHeaderBytes) != uint64(rows)*verifiedRowBytes:
		return nil, fmt.Errorf("%d rows in %d bytes", rows, len(b))
	}
	seen := make(map[segmentKey]finding, rows)
	for b := b[verifiedHeaderBytes:]; len(b) > 0; b = b[verifiedRowBytes:] {
		key := segmentKey{queue.SegmentID(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:])}
		seen[key] = finding{
			verifiedFile: verifiedFile{
				bytes:    int64(binary.LittleEndian.Uint64(b[8:])),
				inode:    binary.LittleEndian.Uint64(b[16:]),
				modified: int64(binary.LittleEndian.Uint64(b[24:])),
			},
			sound: true, durable: true,
		}
	}
	return seen, nil
}

// loadVerified loads the results of earlier runs, if there are any for this queue.
func (s *store) loadVerified() {
	id := s.queueID.Load()
	if id == nil {
		return
	}
	if err := s.verified.load(*id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("all segments are verified again", "error", err)
	}
}

// saveVerified keeps the results for later runs. Where that fails there is only
// more to read after a restart.
func (s *store) saveVerified() {
	id := s.queueID.Load()
	if id == nil {
		return
	}
	if err := s.verified.save(*id); err != nil {
		s.logger.Warn("the results of verifying segments cannot be kept; they are verified again after a restart",
			"path", s.verified.path, "error", err)
	}
}
