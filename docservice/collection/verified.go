package collection

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

// verifiedFiles holds the results of the background pass for the files of a queue. The
// sound files are saved in a file, so that a restart does not read thousands of segments
// again. Little-endian:
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
// The crc covers all bytes after it; segments are in ascending order. A rewrite has the
// number of the first segment that it replaces, and a generation. A file is the verified
// one if size, inode and modification time equal those of the row; the device number is
// ignored, because many file systems get another one at each mount. A file is synced
// before its row is saved: otherwise a power loss could destroy bytes of the file but not
// the row. A file whose fsync fails counts as damaged, because a later fsync may succeed
// without writing the lost bytes.
//
// If the saved results are damaged, of another queue or of another version, all files are
// verified again.
type verifiedFiles struct {
	fs      vfs.FS
	path    string
	seen    map[segmentKey]finding
	changes int // rows changed since the last save
}

// verifiedFile is a version of a segment's file that was read completely.
type verifiedFile struct {
	bytes    int64
	inode    uint64
	modified int64 // Unix nanoseconds
}

// finding is the result for a file.
type finding struct {
	verifiedFile
	sound   bool
	durable bool // the file was synced, so the row may be saved
	// syncErr is the error of a failed fsync, which must not be repeated.
	syncErr error
}

const (
	verifiedMagic       = "DSTVRFD\x00"
	verifiedVersion     = 0
	verifiedHeaderBytes = 40
	verifiedRowBytes    = 32
	// maxVerifiedRows is more than any queue with segments of 4 GiB can have.
	maxVerifiedRows = 1 << 20
	// verifiedSaveInterval is the number of sound segments after which the results are
	// saved during a pass. After a crash at most that many are read again.
	verifiedSaveInterval = 64
)

var errVerifiedUnusable = errors.New("docservice: the saved results of verification are unusable")

func newVerifiedFiles(files vfs.FS, path string) *verifiedFiles {
	return &verifiedFiles{fs: files, path: path, seen: make(map[segmentKey]finding)}
}

func (f segmentFile) verified() verifiedFile {
	return verifiedFile{bytes: f.version.bytes, inode: f.version.file.Inode, modified: f.version.modified.UnixNano()}
}

// knows reports whether this version of the file was read, with any result.
func (v *verifiedFiles) knows(f segmentFile) bool {
	return v.seen[f.segmentKey].verifiedFile == f.verified()
}

// isSound reports whether this version of the file was read and is sound.
func (v *verifiedFiles) isSound(f segmentFile) bool { return v.knows(f) && v.seen[f.segmentKey].sound }

// note records the result for a file, and syncs a sound file. The error is that of fsync.
func (v *verifiedFiles) note(f segmentFile, sound bool) error {
	found := finding{verifiedFile: f.verified(), sound: sound}
	if v.knows(f) {
		found.syncErr = v.seen[f.segmentKey].syncErr
	}
	if sound && found.syncErr == nil {
		found.durable, found.syncErr = syncFile(v.fs, f.path)
	}
	if found.durable || v.seen[f.segmentKey].durable {
		v.changes++
	}
	v.seen[f.segmentKey] = found
	return found.syncErr
}

// syncFile syncs a file that another process has written. If the file cannot be opened, it
// is not durable, but there is no error: no fsync has failed.
func syncFile(files vfs.FS, path string) (durable bool, err error) {
	file, opening := files.Open(path)
	if opening != nil {
		return false, nil
	}
	defer file.Close()
	err = file.Sync()
	return err == nil, err
}

// retain removes the results for files that no longer exist.
func (v *verifiedFiles) retain(files []segmentFile) {
	there := make(map[segmentKey]bool, len(files))
	for _, f := range files {
		there[f.segmentKey] = true
	}
	maps.DeleteFunc(v.seen, func(key segmentKey, _ finding) bool { return !there[key] })
}

// load reads the results of an earlier run. The error is fs.ErrNotExist if there are none.
func (v *verifiedFiles) load(id [16]byte) error {
	info, err := v.fs.Stat(v.path)
	if err != nil {
		return err
	}
	if info.Size > verifiedHeaderBytes+maxVerifiedRows*verifiedRowBytes {
		return errors.Wrapf(errVerifiedUnusable, "%s has %d bytes", v.path, info.Size)
	}
	content, err := vfs.ReadFile(v.fs, v.path)
	if err != nil {
		return err
	}
	seen, err := parseVerified(content, id)
	if err != nil {
		return errors.Wrapf(errVerifiedUnusable, "%s: %v", v.path, err)
	}
	v.seen = seen
	return nil
}

// save durably writes which files of the queue are sound, if that has changed.
func (v *verifiedFiles) save(id [16]byte) error {
	if v.changes == 0 {
		return nil
	}
	if err := vfs.WriteFileAtomic(v.fs, v.path, v.encode(id)); err != nil {
		return err
	}
	v.changes = 0
	return nil
}

func (v *verifiedFiles) encode(id [16]byte) []byte {
	b, rows := make([]byte, verifiedHeaderBytes), uint32(0)
	for _, key := range slices.SortedFunc(maps.Keys(v.seen), compareKeys) {
		f := v.seen[key]
		if !f.durable || rows == maxVerifiedRows {
			continue
		}
		rows++
		b = binary.LittleEndian.AppendUint32(b, uint32(key.id))
		b = binary.LittleEndian.AppendUint32(b, key.generation)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.bytes))
		b = binary.LittleEndian.AppendUint64(b, f.inode)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.modified))
	}
	copy(b[4:], verifiedMagic)
	binary.LittleEndian.PutUint16(b[12:], verifiedVersion)
	copy(b[16:], id[:])
	binary.LittleEndian.PutUint32(b[32:], rows)
	binary.LittleEndian.PutUint32(b, checksum.Of(b[4:]))
	return b
}

// parseVerified decodes the results for the queue with the id.
func parseVerified(b []byte, id [16]byte) (map[segmentKey]finding, error) {
	if len(b) < verifiedHeaderBytes || !bytes.Equal(b[4:12], []byte(verifiedMagic)) {
		return nil, errors.New("not a file of verification results")
	}
	if got, want := checksum.Of(b[4:]), binary.LittleEndian.Uint32(b); got != want {
		return nil, fmt.Errorf("checksum %08x, want %08x", want, got)
	}
	rows := binary.LittleEndian.Uint32(b[32:])
	switch version := binary.LittleEndian.Uint16(b[12:]); {
	case version != verifiedVersion:
		return nil, fmt.Errorf("version %d, this program reads version %d", version, verifiedVersion)
	case !bytes.Equal(b[16:32], id[:]):
		return nil, errors.New("results for another queue")
	case uint64(len(b)-verifiedHeaderBytes) != uint64(rows)*verifiedRowBytes:
		return nil, fmt.Errorf("%d rows do not match %d bytes", rows, len(b))
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

// loadVerified loads the results of earlier runs for this queue.
func (v *verifier) loadVerified() {
	id := v.queueID.Load()
	if id == nil {
		return
	}
	if err := v.verified.load(*id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.logger.Warn("loading the results of verification failed; verifying all segments again", "error", err)
	}
}

// saveVerified saves the results for later runs. If that fails, a restart only has more to
// read.
func (v *verifier) saveVerified() {
	id := v.queueID.Load()
	if id == nil {
		return
	}
	err := v.verified.save(*id)
	if err != nil && !v.unsaved {
		v.logger.Warn("saving the results of verification failed; the segments are verified again after a restart",
			"path", v.verified.path, "error", err)
	}
	v.unsaved = err != nil
}
