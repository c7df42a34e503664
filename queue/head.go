package queue

import (
	"io/fs"
	"time"

	"docstore/internal/vfs"
)

// HeadName is the name of the head file.
const HeadName = "0000000000.head"

// Head is a stub until q1's is merged.
type Head struct {
	Queue   [16]byte
	Highest SegmentID
	Sealed  SegmentID
	Digest  [32]byte
	End     Position
	Time    time.Time
}

// ReadHead is a stub.
func ReadHead(vfs.FS, string) (Head, error) { return Head{}, fs.ErrNotExist }
