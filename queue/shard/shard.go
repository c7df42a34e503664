// Package shard assigns documents to the shards of a collection.
//
//	layout, err := shard.NewLayout(64, seed)
//	i := layout.Shard(id) // 0 <= i < 64
//
// Each shard has a separate queue. The directory of a divided queue has the layout and a
// directory for each shard:
//
//	jobs/LAYOUT        {"format":1,"shards":64,"seed":"123","crc":"9a1b4924"}
//	jobs/shard-0000/   a queue
//	jobs/shard-0001/   ...
//
// The layout of a generation of a collection never changes; another number of shards needs a
// new generation. ReadLayout and WriteLayout are the only access to the file.
package shard

import (
	"fmt"
	"math/bits"
	"path"
	"strconv"
	"unsafe"
)

const (
	// DefaultShards is the default number of shards.
	DefaultShards = 64
	// MaxShards bounds the number of shards.
	MaxShards = 1 << 16
)

// Layout is the division of a collection into shards. The zero value is the layout of a
// collection that is not divided: it has one shard.
type Layout struct {
	// Shards is the number of shards, a power of two.
	Shards int `json:"shards"`
	// Seed is the start of the hash function.
	Seed uint64 `json:"seed,string"`
}

// NewLayout returns a valid layout.
func NewLayout(shards int, seed uint64) (Layout, error) {
	l := Layout{Shards: shards, Seed: seed}
	return l, l.Check()
}

// Check returns an error if the number of shards is not valid.
func (l Layout) Check() error {
	if l.Shards < 1 || l.Shards > MaxShards || l.Shards&(l.Shards-1) != 0 {
		return fmt.Errorf("shard: %d shards: the number must be a power of two between 1 and %d", l.Shards, MaxShards)
	}
	return nil
}

// Shard returns the number of the shard that has the document: the high bits of XXH64 of
// the id, with the layout's seed.
func (l Layout) Shard(id []byte) int { return l.of(sum(l.Seed, id)) }

// ShardString is Shard without a conversion of the id.
func (l Layout) ShardString(id string) int {
	return l.Shard(unsafe.Slice(unsafe.StringData(id), len(id)))
}

func (l Layout) of(hash uint64) int {
	// A shift by 64 is 0 in Go: the only shard.
	return int(hash >> (64 - bits.TrailingZeros(uint(max(l.Shards, 1)))))
}

// Dir returns the directory of a shard's queue in the directory of the collection: shard-0007.
func Dir(dir string, shard int) string { return path.Join(dir, fmt.Sprintf("shard-%04d", shard)) }

// Name returns the name under which a server lists a shard of a collection: jobs/7.
func Name(collection string, shard int) string { return collection + "/" + strconv.Itoa(shard) }
