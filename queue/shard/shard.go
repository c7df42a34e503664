// Package shard assigns documents to the shards of a collection.
//
//	layout, err := shard.Read(vfs.OS, dir)
//	i := layout.Shard(id) // 0 <= i < layout.Shards
//	queue := layout.Dir(dir, i)
//
// Each shard has a separate queue. The directory of a collection has the layout and a directory
// for each shard. A collection of one shard has no file LAYOUT, and its directory is that of the
// shard; Layout.Dir returns it.
//
//	jobs/LAYOUT        {"format":1,"shards":64,"seed":"123","crc":"9a1b4924"}
//	jobs/shard-0000/   a queue
//	jobs/shard-0001/   ...
//
// The layout of a generation of a collection never changes; another number of shards needs a
// new generation. Read and Write are the only access to the file. Package shardset writes the
// queues.
package shard

import (
	"fmt"
	"math/bits"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"
)

const (
	// DefaultShards is the default number of shards.
	DefaultShards = 64
	// MaxShards bounds the number of shards.
	MaxShards = 1 << 16
)

// Layout states how the documents of a collection are assigned to its shards. With one shard
// the Seed is 0. The zero value is no layout.
type Layout struct {
	// Shards is the number of shards, a power of two.
	Shards int `json:"shards"`
	// Seed is the start of the hash function.
	Seed uint64 `json:"seed,string"`
}

// Check returns an error if the layout is not valid.
func (l Layout) Check() error {
	switch {
	case l.Shards < 1 || l.Shards > MaxShards || l.Shards&(l.Shards-1) != 0:
		return fmt.Errorf("shard: %d shards: the number must be a power of two between 1 and %d", l.Shards, MaxShards)
	case l.Shards == 1 && l.Seed != 0:
		return fmt.Errorf("shard: one shard with the seed %d: want 0, because no id is hashed", l.Seed)
	}
	return nil
}

// Shard returns the number of the shard that has the document: the high bits of XXH64 of
// the id, with the layout's seed. With one shard it does not read the id.
func (l Layout) Shard(id []byte) int {
	if l.Shards == 1 {
		return 0
	}
	return int(sum(l.Seed, id) >> (64 - bits.TrailingZeros(uint(l.Shards))))
}

// ShardString is Shard without a conversion of the id.
func (l Layout) ShardString(id string) int {
	return l.Shard(unsafe.Slice(unsafe.StringData(id), len(id)))
}

// Dir returns the directory of a shard's queue in the directory of the collection: dir/shard-0007,
// or dir itself if there is one shard.
func (l Layout) Dir(dir string, shard int) string {
	if l.Shards == 1 {
		return dir
	}
	return filepath.Join(dir, l.Prefix(shard))
}

// Prefix returns the beginning of the names of a shard's files in the directory of the
// collection: "shard-0007/", or "" if there is one shard.
func (l Layout) Prefix(shard int) string {
	if l.Shards == 1 {
		return ""
	}
	return fmt.Sprintf("shard-%04d/", shard)
}

// ParsePrefix is the inverse of Prefix.
func (l Layout) ParsePrefix(prefix string) (shard int, ok bool) {
	// An error leaves a number that has another prefix.
	shard, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(prefix, "shard-"), "/"))
	return shard, shard >= 0 && shard < l.Shards && l.Prefix(shard) == prefix
}

// Name returns the name under which a server lists a shard of a collection: jobs/7.
func Name(collection string, shard int) string { return collection + "/" + strconv.Itoa(shard) }
