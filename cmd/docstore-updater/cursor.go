package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// cursor is where in its input the updater is. It is stored in the queue with
// the documents read up to there, so that --resume goes on right behind them.
//
// Besides the place it holds enough of the file to notice that another one has
// taken its name, or that what was read has been changed: checksums of the head
// of that, and of the line before the place.
//
//	4    "DSUC"
//	u8   version, 0
//	u8   flags: 1 the line before the place has no newline, 2 the file ends here
//	u64  device     u64  inode
//	i64  offset     i64  lines before the offset
//	u32  bytes and  u32  CRC-32C of the head of what was read
//	u32  bytes and  u32  CRC-32C of the end of the line before the offset
//	...  absolute path, to the end
type cursor struct {
	Path      string
	File      vfs.FileID
	Offset    int64 // of the next line
	Lines     int64 // before it
	NoNewline bool  // the last line read ended with the file
	AtEnd     bool  // the file ended at Offset
	Head      sample
	Tail      sample // ends before the newline at Offset
}

// sample is a piece of a file to know it by.
type sample struct {
	Bytes uint32
	CRC   uint32
}

const (
	cursorMagic      = "DSUC"
	cursorVersion    = 0
	cursorFixedBytes = 4 + 2 + 4*8 + 4*4
	maxCursorPath    = 3 << 10 // a longer path is left out: device and inode tell the file
	sampleBytes      = 4 << 10
	cursorNoNewline  = 1
	cursorAtEnd      = 2
	cursorKnownFlags = cursorNoNewline | cursorAtEnd
)

func sampleOf(b []byte) sample {
	return sample{Bytes: uint32(len(b)), CRC: checksum.Of(b)}
}

// append encodes the cursor behind dst.
func (c *cursor) append(dst []byte) []byte {
	var flags byte
	if c.NoNewline {
		flags |= cursorNoNewline
	}
	if c.AtEnd {
		flags |= cursorAtEnd
	}
	dst = append(dst, cursorMagic...)
	dst = append(dst, cursorVersion, flags)
	dst = binary.LittleEndian.AppendUint64(dst, c.File.Device)
	dst = binary.LittleEndian.AppendUint64(dst, c.File.Inode)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Offset))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Lines))
	dst = binary.LittleEndian.AppendUint32(dst, c.Head.Bytes)
	dst = binary.LittleEndian.AppendUint32(dst, c.Head.CRC)
	dst = binary.LittleEndian.AppendUint32(dst, c.Tail.Bytes)
	dst = binary.LittleEndian.AppendUint32(dst, c.Tail.CRC)
	if len(c.Path) <= maxCursorPath {
		dst = append(dst, c.Path...)
	}
	return dst
}

// parseCursor reads what append wrote.
func parseCursor(data []byte) (cursor, error) {
	rest, ours := bytes.CutPrefix(data, []byte(cursorMagic))
	if ours && len(rest) > 0 && rest[0] > cursorVersion {
		return cursor{}, fmt.Errorf("the queue's cursor is of version %d, newer than this program; "+
			"use a newer docstore-updater, or leave --resume out", rest[0])
	}
	if !ours || len(data) < cursorFixedBytes || rest[1]&^cursorKnownFlags != 0 {
		return cursor{}, errors.New("the queue's cursor was not written by docstore-updater; leave --resume out")
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(rest[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(rest[at:]) }
	return cursor{
		NoNewline: rest[1]&cursorNoNewline != 0,
		AtEnd:     rest[1]&cursorAtEnd != 0,
		File:      vfs.FileID{Device: u64(2), Inode: u64(10)},
		Offset:    int64(u64(18)),
		Lines:     int64(u64(26)),
		Head:      sample{u32(34), u32(38)},
		Tail:      sample{u32(42), u32(46)},
		Path:      string(data[cursorFixedBytes:]),
	}, nil
}

// describe names the file for people.
func (c *cursor) describe() string {
	if c.Path == "" {
		return fmt.Sprintf("the file with inode %d", c.File.Inode)
	}
	return c.Path
}

// sameFile tells whether the cursor is a place in the file at path. The same
// file under another name counts; so does another file under the same name,
// because it takes the place of the one that was read: check then finds out
// what has become of that.
func (c *cursor) sameFile(path string, id vfs.FileID) bool {
	if absolute, err := filepath.Abs(path); err == nil && absolute == c.Path {
		return true
	}
	// An inode number is given anew when its file is deleted: the head tells.
	return id == c.File && id != (vfs.FileID{}) && c.checkHead(path) == nil
}

func (c *cursor) checkHead(path string) error {
	file, err := vfs.OS.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return checkSample(file, 0, c.Head)
}

// check verifies that what the cursor says has been read is still there, and
// finds the offset of the next line.
func (c *cursor) check(file io.ReaderAt) (next int64, err error) {
	end := c.Offset
	if !c.NoNewline {
		end--
	}
	if err := checkSample(file, 0, c.Head); err != nil {
		return 0, err
	}
	if err := checkSample(file, end-int64(c.Tail.Bytes), c.Tail); err != nil {
		return 0, err
	}
	if !c.NoNewline {
		return c.Offset, nil
	}
	var behind [1]byte
	switch n, err := file.ReadAt(behind[:], c.Offset); {
	case n == 0 && errors.Is(err, io.EOF):
		return c.Offset, nil
	case n == 0:
		return 0, err
	case behind[0] != '\n':
		return 0, errChanged
	}
	return c.Offset + 1, nil
}

var errChanged = errors.New("what had been read of it has changed since")

func checkSample(file io.ReaderAt, offset int64, want sample) error {
	if offset < 0 || want.Bytes > sampleBytes {
		return errChanged
	}
	got := make([]byte, want.Bytes)
	if n, err := file.ReadAt(got, offset); n < len(got) {
		if errors.Is(err, io.EOF) {
			return errChanged
		}
		return err
	}
	if checksum.Of(got) != want.CRC {
		return errChanged
	}
	return nil
}
