package queue

import (
	"path/filepath"

	"docstore/internal/vfs"
)

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
