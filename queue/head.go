package queue

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// HeadName is the name of the head file in a queue's directory. It sorts before every
// segment, so that a copy in name order transfers it first.
const HeadName = "0000000000.head"

// Head states the extent of a queue at its source. The Writer maintains it in a file,
// which tells a copy which entries have yet to arrive. The file outlives the segments, so
// that no segment number is used twice. docs/format/head.md describes it.
type Head struct {
	Queue   [16]byte
	Highest SegmentID // the highest segment number ever used
	// Sealed is the last sealed segment and Digest the SHA-256 of its footer; zero: no
	// segment is sealed.
	Sealed SegmentID
	Digest [32]byte
	End    Position  // after the last committed entry; zero: there is none
	Time   time.Time // when the file was written, to the millisecond
}

const (
	headVersion = 0
	headTitle   = "docstore queue head, version %d\n"
	headFields  = "queue %x\nhighest %d\nsealed %d\ndigest %x\nend %d/%d/%d\nfooter %x\nchain %08x\ntime %d\n"
	headCRC     = "crc %08x\n" // of all previous bytes; the last line in every version
	// maxHeadBytes exceeds the size of a head of any version.
	maxHeadBytes = 4 << 10
)

// encode returns the bytes of the file.
func (h *Head) encode() []byte {
	b := fmt.Appendf(nil, headTitle, headVersion)
	end := h.End.Next
	b = fmt.Appendf(b, headFields, h.Queue, h.Highest, h.Sealed, h.Digest, end.Segment, end.Block, end.Index,
		h.End.Proof.Footer, h.End.Proof.Chain, h.Time.UnixMilli())
	return fmt.Appendf(b, headCRC, checksum.Update(0, b))
}

// parseHead parses a head file. A newer version is ErrNewerVersion.
func parseHead(b []byte) (Head, error) {
	fields := b[:bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n')+1]
	if want := fmt.Sprintf(headCRC, checksum.Update(0, fields)); string(b[len(fields):]) != want {
		return Head{}, fmt.Errorf("last line is %.20q, the checksum of the others is %q", b[len(fields):], want)
	}
	var version int
	if _, err := fmt.Sscanf(string(fields), headTitle, &version); err != nil {
		return Head{}, fmt.Errorf("first line: %w", err)
	}
	if version != headVersion {
		return Head{}, fmt.Errorf("it is of version %d, this program reads %d: %w", version, headVersion, ErrNewerVersion)
	}
	var h Head
	var queue, digest, footer []byte
	var millis int64
	end := &h.End.Next
	_, err := fmt.Sscanf(string(fields), headTitle+headFields, &version, &queue, &h.Highest, &h.Sealed, &digest,
		&end.Segment, &end.Block, &end.Index, &footer, &h.End.Proof.Chain, &millis)
	if err != nil {
		return Head{}, err
	}
	copy(h.Queue[:], queue)
	copy(h.Digest[:], digest)
	copy(h.End.Proof.Footer[:], footer)
	h.Time = time.UnixMilli(millis)
	if !bytes.Equal(h.encode(), b) {
		return Head{}, errors.New("it is not in the canonical form")
	}
	if !end.IsZero() {
		h.End.Queue = h.Queue
	}
	return h, nil
}

// ReadHead reads the head file of the queue in dir. The error matches fs.ErrNotExist if
// there is none, and is a *CorruptionError if it is damaged.
func ReadHead(fsys vfs.FS, dir string) (Head, error) {
	path := filepath.Join(dir, HeadName)
	file, err := fsys.Open(path)
	if err != nil {
		return Head{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Head{}, fmt.Errorf("queue: reading %s: %w", path, err)
	}
	b := make([]byte, min(info.Size, maxHeadBytes))
	if n, err := file.ReadAt(b, 0); n < len(b) {
		return Head{}, fmt.Errorf("queue: reading %s: %w", path, err)
	}
	h, err := parseHead(b)
	switch {
	case errors.Is(err, ErrNewerVersion):
		return Head{}, fmt.Errorf("queue: %s: %w", path, err)
	case err != nil:
		return Head{}, &CorruptionError{Path: path, Reason: err.Error()}
	}
	return h, nil
}

// MarshalText returns the content of a head file.
func (h Head) MarshalText() ([]byte, error) { return h.encode(), nil }

// UnmarshalText parses the content of a head file.
func (h *Head) UnmarshalText(text []byte) error {
	parsed, err := parseHead(text)
	if err == nil {
		*h = parsed
	}
	return err
}

// WriteHead replaces the head file in the directory of a copy, and makes it durable. In
// the directory where a queue is written, the Writer keeps the file.
func WriteHead(fsys vfs.FS, dir string, h Head) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, HeadName), h.encode())
}
