package shardset

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"docstore/internal/vfs"
	"docstore/queue"
)

// checkpoint states that the shards had all records up to a cursor, and no others, when they
// had these ends.
type checkpoint struct {
	Format int `json:"format"`
	// Cursor is the position in the input; empty: its start.
	Cursor []byte `json:"cursor"`
	// Ends are the ends of the shards: see queue.Writer.End.
	Ends []end `json:"ends"`
}

// end is an address in JSON: segment, block, index.
type end [3]uint32

func endOf(a queue.Address) end { return end{uint32(a.Segment), a.Block, uint32(a.Index)} }

// readCheckpoint reads the last checkpoint; nil: there is none.
func readCheckpoint(fsys vfs.FS, dir string, shards int) (*checkpoint, error) {
	var c checkpoint
	name := filepath.Join(dir, checkpointName)
	err := readFile(fsys, name, &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case len(c.Ends) != shards:
		return nil, fmt.Errorf("shardset: %s: %w: it has %d shards, the layout %d", name, errDamaged, len(c.Ends), shards)
	case len(c.Cursor) > queue.MaxCursorBytes:
		return nil, fmt.Errorf("shardset: %s: %w: its cursor has %d bytes, at most %d are allowed", name, errDamaged, len(c.Cursor), queue.MaxCursorBytes)
	}
	return &c, nil
}

func writeCheckpoint(fsys vfs.FS, dir string, c checkpoint) error {
	c.Format = fileFormat
	return writeFile(fsys, filepath.Join(dir, checkpointName), c)
}

// cursorOf returns the cursor of a shard with this end, whose last block has a cursor. c may
// be nil.
func (c *checkpoint) cursorOf(shard int, at queue.Address, last []byte) []byte {
	if c != nil && c.Ends[shard] == endOf(at) {
		return c.Cursor
	}
	return last
}
