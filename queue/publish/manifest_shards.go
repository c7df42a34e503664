package publish

import (
	"fmt"
	"path"
	"strings"

	"docstore/queue"
	"docstore/queue/shard"
)

// emptyManifest returns a manifest without files.
func emptyManifest(l shard.Layout) *Manifest {
	return &Manifest{Layout: l, Heads: make([]queue.Head, l.Shards)}
}

// Shard returns the view of one shard: a manifest of its queue alone, with the same number,
// and names of files in the directory of the shard. ErrRefused: the collection has no such
// shard.
func (m *Manifest) Shard(i int) (*Manifest, error) {
	if i < 0 || i >= m.Layout.Shards {
		return nil, refused("manifest %d has no shard %d: the collection has the shards 0 to %d", m.Number, i, m.Layout.Shards-1)
	}
	return m.queueAt(i), nil
}

// queueAt is Shard for a shard that exists.
func (m *Manifest) queueAt(i int) *Manifest {
	if m.Layout.Shards == 1 {
		return m
	}
	return &Manifest{
		Number: m.Number, Previous: m.Previous, Parent: m.Parent, Time: m.Time,
		Layout: shard.Layout{Shards: 1}, Heads: m.Heads[i : i+1], Files: withoutPrefix(m.filesOf(i), m.Layout.Prefix(i)),
	}
}

// filesOf returns the files of a shard, which are contiguous because files are sorted.
func (m *Manifest) filesOf(i int) []File {
	prefix := m.Layout.Prefix(i)
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

// ShardBytes returns the bytes of the files of each shard.
func (m *Manifest) ShardBytes() []int64 {
	bytes := make([]int64, m.Layout.Shards)
	for _, f := range m.Files {
		if i, _, ok := m.parseName(f.Name); ok {
			bytes[i] += f.Size
		}
	}
	return bytes
}

// sameQueues reports whether two manifests describe the same queue in each shard.
func (m *Manifest) sameQueues(other *Manifest) bool {
	if m.Layout != other.Layout {
		return false
	}
	for i, head := range m.Heads {
		if there := other.Heads[i]; head.Sealed > 0 && there.Sealed > 0 && head.Queue != there.Queue {
			return false
		}
	}
	return true
}

// ends returns the last segment of each shard.
func (m *Manifest) ends() []queue.SegmentID {
	ends := make([]queue.SegmentID, len(m.Heads))
	for i, head := range m.Heads {
		ends[i] = head.Sealed
	}
	return ends
}

// parseName parses the name of a file in a manifest. i is its shard.
func (m *Manifest) parseName(name string) (i int, file queue.FileName, ok bool) {
	base := path.Base(name)
	if i, ok = m.Layout.ParsePrefix(strings.TrimSuffix(name, base)); ok {
		file, ok = queue.ParseFileName(base)
	}
	return i, file, ok
}

// validateHeads returns an error unless exactly the shards with files have a head. The
// names of the files are valid.
func (m *Manifest) validateHeads() error {
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

// Incarnation names the generation of a manifest of a record. A placement is valid for one: the
// shards of another generation have other documents.
func (m *Manifest) Incarnation(r Record) string {
	return fmt.Sprintf("%d-%s", r.Generation(m.Number), layoutName(m.Layout))
}
