package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"docstore/ingest/internal/cursors"
	"docstore/ingest/records"
	"docstore/internal/checksum"
	"docstore/internal/eof"
	"docstore/internal/vfs"
	"docstore/queue"
)

// cursor is the position of the updater in its input. The queue stores it together with
// the documents read up to there, so that --resume continues right after them.
//
// It also identifies the file, to detect that the file was replaced, or that the part read
// was changed: by checksums of the head of that part and of the last record.
//
//	4    "DSUC"
//	u8   version, 0
//	u8   flags: 1 the last record has no newline, 2 the file ends here, 4 the record
//	     is the whole file, 8 the file is an object (see objects)
//	u64  device     u64  inode
//	i64  offset     i64  lines, elements or files before the offset
//	u32  bytes and  u32  CRC-32C of the head of the part read
//	u32  bytes and  u32  CRC-32C of the end of the record before the offset, of a Parquet
//	     file those of its footer
//	     of an object, whose inode field is its size in bytes, and whose device field is the hash
//	     of the records before the offset, 0 if it is unknown:
//	u64  number and  u64  XOR of the hashes of the objects read
//	i64  the latest of their times of modification, in nanoseconds since 1970
//	...  absolute path, or name of the object, to the end
//
// The head is that of the stored file; offset and record refer to its contents,
// decompressed and, for a table, converted to JSON.
type cursor struct {
	Path      string
	File      vfs.FileID
	Offset    int64 // of the next record
	Lines     int64 // lines, elements or files before Offset
	NoNewline bool  // the last line read ended with the file
	AtEnd     bool  // the file ended at Offset
	WholeFile bool  // a document of a directory
	Object    bool  // Path is the name of an object, File.Inode its size, File.Device hashes its records
	Seen      seen  // of objects
	Head      sample
	Tail      sample // of the record before Offset, or the footer
}

// sample identifies a piece of a file.
type sample struct {
	Bytes uint32
	CRC   uint32
}

const (
	maxCursorPath    = 3 << 10 // a longer path is omitted: device and inode identify the file
	sampleBytes      = 4 << 10 // at most
	tailBytes        = 512     // limits the cost of the checksum of a record's end
	cursorNoNewline  = 1
	cursorAtEnd      = 2
	cursorWholeFile  = 4
	cursorObject     = 8
	cursorKnownFlags = cursorNoNewline | cursorAtEnd | cursorWholeFile | cursorObject
)

// The longest cursor fits into a block.
const _ = uint(queue.MaxCursorBytes - (4 + 2 + 4*8 + 4*4 + 3*8 + maxCursorPath))

func sampleOf(b []byte) sample {
	return sample{Bytes: uint32(len(b)), CRC: checksum.Of(b)}
}

// tailOf returns the sample of a record's end.
func tailOf(text []byte) sample { return sampleOf(text[max(0, len(text)-tailBytes):]) }

// isTailOf reports whether the sample matches the end of a record, with all of it or at
// least tailBytes: earlier versions may have used a larger tailBytes.
func (s sample) isTailOf(text []byte) bool {
	bytes := int(s.Bytes)
	return (bytes == len(text) || bytes >= tailBytes && bytes < len(text)) && sampleOf(text[len(text)-bytes:]) == s
}

// append appends the encoded cursor to dst.
func (c *cursor) append(dst []byte) []byte {
	var flags byte
	if c.NoNewline {
		flags |= cursorNoNewline
	}
	if c.AtEnd {
		flags |= cursorAtEnd
	}
	if c.WholeFile {
		flags |= cursorWholeFile
	}
	if c.Object {
		flags |= cursorObject
	}
	dst = append(cursorKind.Append(dst), flags)
	dst = binary.LittleEndian.AppendUint64(dst, c.File.Device)
	dst = binary.LittleEndian.AppendUint64(dst, c.File.Inode)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Offset))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Lines))
	dst = binary.LittleEndian.AppendUint32(dst, c.Head.Bytes)
	dst = binary.LittleEndian.AppendUint32(dst, c.Head.CRC)
	dst = binary.LittleEndian.AppendUint32(dst, c.Tail.Bytes)
	dst = binary.LittleEndian.AppendUint32(dst, c.Tail.CRC)
	if c.Object {
		dst = binary.LittleEndian.AppendUint64(dst, c.Seen.Count)
		dst = binary.LittleEndian.AppendUint64(dst, c.Seen.Hash)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Seen.Modified))
	}
	if len(c.Path) <= maxCursorPath {
		dst = append(dst, c.Path...)
	}
	return dst
}

var cursorKind = cursors.Kind{
	Magic: "DSUC", Name: "files",
	Foreign: errors.New("the queue's cursor was not written by docstore-updater; use --resume=false"),
	Damaged: errors.New("the queue's cursor is damaged; use --resume=false"),
}

// parseCursor decodes the result of append.
func parseCursor(data []byte) (c cursor, err error) {
	_, d, err := cursorKind.Open(data)
	if err != nil {
		return c, err
	}
	flags := d.Byte(cursorKnownFlags)
	c.NoNewline, c.AtEnd = flags&cursorNoNewline != 0, flags&cursorAtEnd != 0
	c.WholeFile, c.Object = flags&cursorWholeFile != 0, flags&cursorObject != 0
	c.File = vfs.FileID{Device: d.Uint64(), Inode: d.Uint64()}
	c.Offset, c.Lines = int64(d.Uint64()), int64(d.Uint64())
	c.Head, c.Tail = sample{d.Uint32(), d.Uint32()}, sample{d.Uint32(), d.Uint32()}
	if c.Object {
		c.Seen = seen{d.Uint64(), d.Uint64(), int64(d.Uint64())}
	}
	c.Path = string(d.Rest(len(data)))
	return c, d.End()
}

// describe returns the name of the file for messages.
func (c *cursor) describe() string {
	if c.Path == "" {
		return fmt.Sprintf("the file with inode %d", c.File.Inode)
	}
	return c.Path
}

// check verifies that the lines that the cursor has passed are still in the file, and
// returns the offset of the next line.
func (c *cursor) check(file io.ReaderAt) (next int64, err error) {
	end := c.Offset
	if !c.NoNewline {
		end--
	}
	if err := checkSample(file, 0, c.Head); err != nil {
		return 0, err
	}
	if c.Offset == 0 { // the start of a renamed file
		return 0, nil
	}
	if err := checkSample(file, end-int64(c.Tail.Bytes), c.Tail); err != nil {
		return 0, err
	}
	if !c.NoNewline {
		return c.Offset, nil
	}
	var behind [1]byte
	switch n, err := file.ReadAt(behind[:], c.Offset); {
	case n == 0 && eof.Is(err):
		return c.Offset, nil
	case n == 0:
		return 0, err
	case behind[0] != '\n':
		return 0, errChanged
	}
	return c.Offset + 1, nil
}

var errChanged = errors.New("the part that was read has changed since")

func checkSample(file io.ReaderAt, offset int64, want sample) error {
	if offset < 0 || want.Bytes > sampleBytes {
		return errChanged
	}
	got := make([]byte, want.Bytes)
	if n, err := file.ReadAt(got, offset); n < len(got) {
		if eof.Is(err) {
			return errChanged
		}
		return err
	}
	if checksum.Of(got) != want.CRC {
		return errChanged
	}
	return nil
}

// addHash returns the hash of records whose last is text, from that of the records before it.
func addHash(before uint64, text []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(before)
	_, _ = d.Write(text) // never fails
	return d.Sum64()
}

// moveAfter moves the cursor after a record of a file whose first bytes are head. It
// samples no bytes after that place, because they may change, as when an invalid line is
// corrected. footer is the sample of a Parquet file, which never changes; zero: of another one.
func (c *cursor) moveAfter(record records.Record, head []byte, footer sample) {
	if c.Object && footer == (sample{}) && (c.Lines == 0 || c.File.Device != 0) {
		c.File.Device = addHash(c.File.Device, record.Text)
	}
	c.Offset, c.Lines, c.NoNewline = record.End, record.Number, !record.Newline
	if c.Tail = footer; footer == (sample{}) {
		c.Tail = tailOf(record.Text)
	}
	if int(c.Head.Bytes) < len(head) {
		c.Head = sampleOf(head[:min(c.Offset, int64(len(head)))])
	}
}

// Describe describes a stored cursor without its files: the name of the file and the number of
// lines that were read from it. The error says that it is no cursor of files.
func Describe(stored []byte) (string, error) {
	c, err := parseCursor(stored)
	if err != nil {
		return "", err
	}
	return (&position{index: -1, at: c}).String(), nil
}
