package queue

import (
	"fmt"

	"docstore/internal/vfs"
)

// Settled returns up to where the queue has to be read to know what became of all
// that a rewrite has left out, as of GoneError. The file is a rewrite that is whole.
func Settled(fsys vfs.FS, path string, first SegmentID) (Position, error) {
	s, err := openSegmentFile(fsys, path, first)
	if err != nil {
		return Position{}, err
	}
	defer s.file.Close()
	if s.relocations == nil {
		return Position{}, fmt.Errorf("queue: %s is no rewrite", path)
	}
	return Position{Queue: s.header.queue, Next: s.relocations.settled}, nil
}
