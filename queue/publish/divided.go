package publish

import (
	"path/filepath"
	"strconv"
	"strings"

	"docstore/queue"
	"docstore/queue/shard"
)

// A manifest of a divided collection has the layout, the head of each shard, and the files of
// all shards with the directory of the shard before their names.

const (
	// dividedFormat is the format of a manifest with a layout.
	dividedFormat = 2

	shardPrefix = "shard-"
)

// queueCount returns the number of queues that a manifest describes.
func (m *Manifest) queueCount() int {
	if m.Layout == nil {
		return 1
	}
	return m.Layout.Shards
}

// Shard returns the view of one shard: a manifest of its queue alone, with the same number,
// and names of files in the directory of the shard. ErrRefused: the collection is not
// divided, or has no such shard.
func (m *Manifest) Shard(i int) (*Manifest, error) {
	switch {
	case m.Layout == nil:
		return nil, refused("manifest %d is of a collection that is not divided into shards", m.Number)
	case i < 0 || i >= m.Layout.Shards:
		return nil, refused("manifest %d has no shard %d: the collection has the shards 0 to %d", m.Number, i, m.Layout.Shards-1)
	}
	return m.queueAt(i), nil
}

// queueAt returns the manifest of one queue: of a shard, or m itself if it has no layout.
func (m *Manifest) queueAt(i int) *Manifest {
	if m.Layout == nil {
		return m
	}
	return &Manifest{
		Format: manifestFormat, Number: m.Number, Previous: m.Previous, Parent: m.Parent, Time: m.Time,
		Head: m.Heads[i], Files: withoutPrefix(m.filesOf(i), dirPrefix(*m.Layout, i)),
	}
}

// filesOf returns the files of a shard, which are contiguous because files are sorted.
func (m *Manifest) filesOf(i int) []File {
	prefix := dirPrefix(*m.Layout, i)
	from := m.find(prefix)
	to := from
	for to < len(m.Files) && strings.HasPrefix(m.Files[to].Name, prefix) {
		to++
	}
	return m.Files[from:to]
}

func withoutPrefix(files []File, prefix string) []File {
	without := make([]File, len(files))
	for i, f := range files {
		f.Name = strings.TrimPrefix(f.Name, prefix)
		without[i] = f
	}
	return without
}

// ShardBytes returns the bytes of the files of each shard; nil: the collection is not
// divided.
func (m *Manifest) ShardBytes() []int64 {
	if m.Layout == nil {
		return nil
	}
	bytes := make([]int64, m.Layout.Shards)
	for _, f := range m.Files {
		if i, _, ok := m.parseName(f.Name); ok {
			bytes[i] += f.Size
		}
	}
	return bytes
}

// sameLayout reports whether the queues of two manifests can be compared one by one.
func (m *Manifest) sameLayout(other *Manifest) bool {
	if m.Layout == nil || other.Layout == nil {
		return m.Layout == other.Layout
	}
	return *m.Layout == *other.Layout
}

// sameQueue reports whether two manifests describe the same queue, or the same shards.
func (m *Manifest) sameQueue(other *Manifest) bool {
	if !m.sameLayout(other) || m.Head.Queue != other.Head.Queue {
		return false
	}
	for i, head := range m.Heads {
		if there := other.Heads[i]; head.Sealed > 0 && there.Sealed > 0 && head.Queue != there.Queue {
			return false
		}
	}
	return true
}

// dirPrefix is before the names of a shard's files.
func dirPrefix(l shard.Layout, i int) string { return l.Dir("", i) + "/" }

// parseName parses the name of a file in a manifest. i is its shard; 0 without a layout.
func (m *Manifest) parseName(name string) (i int, file queue.FileName, ok bool) {
	if m.Layout != nil {
		dir, base, _ := strings.Cut(name, "/")
		n, err := strconv.Atoi(strings.TrimPrefix(dir, shardPrefix))
		if err != nil || n < 0 || n >= m.Layout.Shards || m.Layout.Dir("", n) != dir {
			return 0, queue.FileName{}, false
		}
		i, name = n, base
	}
	file, ok = queue.ParseFileName(name)
	return i, file, ok
}

// validateLayout returns an error unless the heads are those of the shards of the layout.
func (m *Manifest) validateLayout() error {
	if m.Layout == nil {
		if m.Format != manifestFormat || m.Heads != nil {
			return corrupt("manifest %d has format %d and %d heads, but no layout", m.Number, m.Format, len(m.Heads))
		}
		return nil
	}
	if err := m.Layout.Check(); err != nil {
		return corrupt("manifest %d: %v", m.Number, err)
	}
	switch {
	case m.Layout.Shards < 2:
		return corrupt("manifest %d has a layout of %d shard", m.Number, m.Layout.Shards)
	case m.Format != dividedFormat:
		return corrupt("manifest %d has a layout and format %d, want %d", m.Number, m.Format, dividedFormat)
	case len(m.Heads) != m.Layout.Shards:
		return corrupt("manifest %d has %d heads of %d shards", m.Number, len(m.Heads), m.Layout.Shards)
	case m.Head.Sealed != 0:
		return corrupt("manifest %d has a layout and also the head of one queue", m.Number)
	}
	return nil
}

// validateHeads returns an error unless exactly the shards with files have a head. The
// names of the files are valid.
func (m *Manifest) validateHeads() error {
	if m.Layout == nil {
		return nil
	}
	has := make([]bool, m.Layout.Shards)
	for _, f := range m.Files {
		i, _, _ := m.parseName(f.Name)
		has[i] = true
	}
	for i, head := range m.Heads {
		if has[i] != (head.Sealed > 0) {
			return corrupt("manifest %d has a head of shard %d that ends with segment %d, which its files do not", m.Number, i, head.Sealed)
		}
	}
	return nil
}

// queueDir returns the directory of one queue of a manifest in the directory of the
// collection.
func (m *Manifest) queueDir(dir string, i int) string {
	if m.Layout == nil {
		return dir
	}
	return filepath.FromSlash(m.Layout.Dir(dir, i))
}
