package queuetest

import (
	"bytes"
	"errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// Damages are the ways of damaging a byte.
var Damages = []struct {
	Name string
	Do   func(content []byte, at int) []byte
}{
	{"flipped", func(content []byte, at int) []byte { content[at] ^= 1 << (at % 8); return content }},
	{"inverted", func(content []byte, at int) []byte { content[at] ^= 0xff; return content }},
	{"zeroed", func(content []byte, at int) []byte { content[at] = 0; return content }},
	{"cut", func(content []byte, at int) []byte { return content[:at] }},
	{"zeroed to the end", func(content []byte, at int) []byte { clear(content[at:]); return content }},
}

// FixChecksums corrects the checksums of all headers and frames in content, so that fuzzing
// reaches the code behind them.
func FixChecksums(content []byte) []byte {
	content = bytes.Clone(content)
	seal := func(frame []byte) { segment.Little.PutUint32(frame, checksum.Of(frame[4:])) }
	if len(content) < segment.HeaderBytes {
		return content
	}
	copy(content, segment.SegmentMagic)
	segment.Little.PutUint32(content[8:], checksum.Of(content[12:segment.HeaderBytes]))
	chain := segment.Little.Uint32(content[8:])
	relocationsAt := uint64(0)
	offset := uint64(segment.HeaderBytes) + uint64(segment.Little.Uint32(content[92:]))
	for offset+segment.MarkBytes <= uint64(len(content)) {
		frame := content[offset:]
		switch segment.FrameType(frame[4]) {
		case segment.FrameBlock:
			if len(frame) < segment.BlockHeaderBytes {
				return content
			}
			table := segment.BlockHeaderBytes + uint64(segment.Little.Uint32(frame[8:]))
			if table > uint64(len(frame)) {
				return content
			}
			segment.Little.PutUint32(frame[16:], chain)
			seal(frame[:table])
			chain = segment.Little.Uint32(frame)
			offset += table + uint64(segment.Little.Uint32(frame[12:]))
		case segment.FrameMark:
			segment.Little.PutUint32(frame[8:], uint32(offset))
			segment.Little.PutUint32(frame[12:], chain)
			seal(frame[:segment.MarkBytes])
			offset += segment.MarkBytes
		case segment.FrameFooter:
			if len(frame) != segment.FooterBytes {
				return content
			}
			segment.Little.PutUint32(frame[8:], uint32(offset))
			segment.Little.PutUint32(frame[12:], chain)
			copy(frame[16:], content[16:36])
			segment.Little.PutUint32(frame[44:], uint32(relocationsAt))
			seal(frame)
			return content
		case segment.FrameRelocations:
			if len(frame) < segment.RelocationsHeadBytes || segment.RelocationsSize(frame) > int64(len(frame)) {
				return content
			}
			size := segment.RelocationsSize(frame)
			segment.Little.PutUint32(frame[8:], uint32(offset))
			seal(frame[:size])
			relocationsAt = offset
			offset += uint64(size)
		default:
			return content
		}
	}
	return content
}

// ErrCrash is the error of each operation after a crash.
var ErrCrash = errors.New("crash")

// CrashAfter returns a file system that stops before its k-th writing operation.
func CrashAfter(fsys vfs.FS, k int) vfs.FS {
	var writes int
	return vfs.NewFault(fsys, func(op vfs.Op) error {
		if op.Kind.Writes() {
			writes++
		}
		if writes >= k {
			return ErrCrash
		}
		return nil
	})
}
