package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/cockroachdb/errors"
)

// Usage says what of a segment's documents is still of use. The rest is dead:
// a later entry has overwritten or deleted the document, or it has expired.
type Usage struct {
	Segment       SegmentID
	Documents     int64 // committed when the queue was read
	StoredBytes   int64 // of them; DeadBytes counts among these
	LiveDocuments int64
	LiveBytes     int64 // as stored
}

// DeadBytes are the stored bytes of the documents that nobody can ask for.
func (u Usage) DeadBytes() int64 { return u.StoredBytes - u.LiveBytes }

// DefaultUsageMemory is what Usage may take by default: enough for 4.4 million
// ids in a pass.
const DefaultUsageMemory = 256 << 20

// usageBytesPerID bounds what an id takes in the map of newest versions: 24
// bytes, a control byte, and tables that are between 7/16 and 7/8 full.
const usageBytesPerID = 60

// maxUsagePasses bounds how often Usage reads the tables of the whole queue.
const maxUsagePasses = 1 << 10

// idHash stands for an id: the first half of its SHA-256, so that two ids share
// one by accident as little as by intent.
type idHash [16]byte

// newestVersion is a document that no later entry has overwritten as yet.
type newestVersion struct {
	segment     SegmentID
	storedBytes uint32
}

// Usage reads the tables of the whole queue, no documents, and accounts for
// each stored byte exactly, as of now and of the entries committed when it
// began. Segments without entries are not listed.
//
// It needs no index. It keeps up to memoryBytes (zero: DefaultUsageMemory), 60
// for each id, and where the queue has more entries than that is good for it
// reads the queue several times, taking a share of the ids each time.
//
// Where a segment is missing or damaged there is no exact answer: the error is
// as Scan's.
func (r *Reader) Usage(ctx context.Context, now time.Time, memoryBytes int64) ([]Usage, error) {
	if memoryBytes <= 0 {
		memoryBytes = DefaultUsageMemory
	}
	segments, err := r.Segments()
	if err != nil {
		return nil, err
	}
	var entries int64
	for _, s := range segments {
		entries += s.Entries
	}
	passes := entries*usageBytesPerID/memoryBytes + 1
	if passes > maxUsagePasses {
		return nil, errors.Newf("queue: accounting for %d entries in %d bytes of memory takes %d passes, at most %d are made: give it %d bytes",
			entries, memoryBytes, passes, maxUsagePasses, entries*usageBytesPerID/maxUsagePasses+1)
	}
	u := usageScan{now: now, passes: uint32(passes)}
	for u.pass = range u.passes {
		if err := u.read(ctx, r); err != nil {
			return nil, err
		}
	}
	return u.segments, nil
}

// usageScan accounts for the ids whose hash falls to the pass.
type usageScan struct {
	now          time.Time
	pass, passes uint32
	end          Position // where the first pass ended, and so all others
	segments     []Usage  // ascending
	newest       map[idHash]newestVersion
}

// errUsageEnd ends a pass at the end of the first one.
var errUsageEnd = errors.New("queue: end of the first pass")

func (u *usageScan) read(ctx context.Context, r *Reader) error {
	u.newest = make(map[idHash]newestVersion)
	if u.pass > 0 && u.end.IsZero() {
		return nil
	}
	err := r.Scan(ctx, Position{Queue: u.end.Queue}, func(e Entry) error {
		u.add(&e)
		switch {
		case u.pass == 0:
			u.end = e.Next
		case e.Next == u.end:
			return errUsageEnd
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUsageEnd) {
		return err
	}
	for _, v := range u.newest {
		i, _ := slices.BinarySearchFunc(u.segments, v.segment, func(s Usage, n SegmentID) int { return cmp.Compare(s.Segment, n) })
		live := &u.segments[i]
		live.LiveDocuments++
		live.LiveBytes += int64(v.storedBytes)
	}
	return nil
}

// add takes the next entry.
func (u *usageScan) add(e *Entry) {
	if u.pass == 0 {
		if n := len(u.segments); n == 0 || u.segments[n-1].Segment != e.Address.Segment {
			u.segments = append(u.segments, Usage{Segment: e.Address.Segment})
		}
		s := &u.segments[len(u.segments)-1]
		if !e.Deleted {
			s.Documents++
			s.StoredBytes += int64(e.StoredBytes)
		}
	}
	sum := sha256.Sum256(e.ID)
	if u.passes > 1 && little.Uint32(sum[16:])%u.passes != u.pass {
		return
	}
	id := idHash(sum[:16])
	if e.Deleted || !e.Expires.IsZero() && !u.now.Before(e.Expires) {
		delete(u.newest, id)
		return
	}
	u.newest[id] = newestVersion{segment: e.Address.Segment, storedBytes: uint32(e.StoredBytes)}
}
