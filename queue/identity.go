package queue

import (
	"fmt"

	"docstore/internal/vfs"
)

// Bind restricts fetches to segments of the queue with the id. It is needed if files of
// another queue may be copied into the directory: both queues can have the same id at the
// same address.
func (r *Reader) Bind(queue [16]byte) { r.files.bound.Store(&queue) }

// checkBound returns an error if the cache is bound to another queue than the file's.
func (c *fileCache) checkBound(s *segmentFile) error {
	if bound := c.bound.Load(); bound != nil && s.header.queue != *bound {
		return s.forked(*bound)
	}
	return nil
}

// forked is the error for a file of a queue other than the one that is read.
func (s *segmentFile) forked(want [16]byte) error {
	return fmt.Errorf("%w: %s is of queue %x, not of %x", ErrForked, s.path, s.header.queue, want)
}

// IDOf returns the id of the queue that a segment's file belongs to, by its header.
func IDOf(fsys vfs.FS, path string) ([16]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return [16]byte{}, err
	}
	defer file.Close()
	b := make([]byte, headerBytes)
	if _, err := file.ReadAt(b, 0); err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: header: %w", path, err)
	}
	header, err := parseHeader(b)
	if err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: %w", path, err)
	}
	return header.queue, nil
}
