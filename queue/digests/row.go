package digests

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"docstore/queue/internal/segment"
)

// Digest identifies the content of a version of a document, and its expiry.
type Digest struct {
	Content uint64 // XXH64 of the document
	Expires uint32 // Unix seconds; 0: never
}

// Of returns the digest of a document; the zero time: it does not expire.
func Of(document []byte, expires time.Time) Digest {
	return Digest{xxhash.Sum64(document), segment.ExpirySeconds(expires)}
}

// Expired reports whether the document has expired.
func (d Digest) Expired(now time.Time) bool { return d.Expires != 0 && int64(d.Expires) <= now.Unix() }

// hash is the first half of the SHA-256 of an id.
type hash [16]byte

func hashOf(id []byte) hash {
	sum := sha256.Sum256(id)
	return hash(sum[:16])
}

// row is a row of a table, of a temporary file, or to be sorted.
type row struct {
	id     hash
	value  uint64 // Digest.Content, or the mark of an id in a Unique
	expiry uint32 // Digest.Expires
	order  uint32 // of the rows in memory; its lowest bit says that the id was deleted
}

const rowBytes = 32

func (r *row) digest() Digest { return Digest{r.value, r.expiry} }

func (r *row) deleted() bool { return r.order&1 != 0 }

// compare orders by id, then by time.
func (r row) compare(other row) int {
	if c := bytes.Compare(r.id[:], other.id[:]); c != 0 {
		return c
	}
	return cmp.Compare(r.order, other.order)
}

func (r *row) append(b []byte) []byte {
	b = append(b, r.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.value)
	b = binary.LittleEndian.AppendUint32(b, r.expiry)
	return binary.LittleEndian.AppendUint32(b, r.order)
}

// rowIn returns the row in bytes.
func rowIn(b []byte) row {
	return row{hash(b[:16]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint32(b[24:]), binary.LittleEndian.Uint32(b[28:])}
}
