package maintain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"docstore/internal/canary"
	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// Usage counts the live and the dead documents of a segment. A document is dead if a
// later entry has overwritten or deleted it, or if it has expired.
type Usage struct {
	Segment       queue.SegmentID
	Documents     int64 // committed when the queue was read
	StoredBytes   int64 // of them; includes the dead ones
	LiveDocuments int64 // without canaries
	LiveBytes     int64 // as stored
}

// DeadBytes returns the stored bytes of dead documents.
func (u Usage) DeadBytes() int64 { return u.StoredBytes - u.LiveBytes }

// DefaultUsageMemory is the default memory of Usage: 4.0 million ids in a pass.
const DefaultUsageMemory = 256 << 20

// usageBytesPerID bounds the memory of an id in the map of newest versions: 28 bytes, a
// control byte, and tables that are between 7/16 and 7/8 full.
const usageBytesPerID = 67

// maxUsagePasses bounds the number of passes over the tables of the queue.
const maxUsagePasses = 1 << 10

// idHash identifies an id: the first half of its SHA-256, so that collisions are
// infeasible.
type idHash [16]byte

// newestVersion is the newest entry of an id so far.
type newestVersion struct {
	segment queue.SegmentID
	first   queue.SegmentID // the first segment with a document of the id; 0: none
	weight  uint32          // kind and stored bytes
}

// Kinds of a newestVersion, in the upper bits of its weight.
const (
	versionLive    uint32 = 0
	versionExpired uint32 = 1 << 30
	versionDelete  uint32 = 2 << 30
	versionCanary  uint32 = 3 << 30 // live
	versionKinds   uint32 = 3 << 30
)

func (v newestVersion) kind() uint32 { return v.weight & versionKinds }
func (v newestVersion) bytes() int64 { return int64(v.weight &^ versionKinds) }

// Measure reads the tables of the whole queue, no documents, and accounts for each stored
// byte exactly, for the entries committed when it began. Segments without entries are not
// listed.
//
// It needs no index. It uses up to memoryBytes (zero: DefaultUsageMemory), 67 for each
// id. If that is not enough for all entries it reads the queue several times, each time
// for a part of the ids.
//
// If a segment is missing or damaged there is no exact answer: the error is that of Scan.
func Measure(ctx context.Context, r *queue.Reader, now time.Time, memoryBytes int64) ([]Usage, error) {
	u := usageScan{now: now}
	if err := u.run(ctx, r, memoryBytes); err != nil {
		return nil, err
	}
	usage := make([]Usage, 0, len(u.segments))
	for _, s := range u.segments {
		usage = append(usage, s.Usage)
	}
	return usage, nil
}

// segmentUsage is Usage with more information for compaction.
type segmentUsage struct {
	Usage
	deleteBytes int64 // of the deletes' entries
	needed      int64 // of these, from deletes that are still needed
	erasable    bool  // has documents that were dead at deadBefore
}

// usageScan accounts for the ids whose hash belongs to the pass.
type usageScan struct {
	now time.Time
	// deadBefore: segments with documents dead at this time are marked; zero: none are.
	deadBefore time.Time
	// deletesStay: deletes from this segment on count as needed; 0: none do.
	deletesStay queue.SegmentID
	// ends are CompactOptions.RetainedEnds, and held those of them that keep documents which
	// were dead at deadBefore.
	ends []queue.SegmentID
	held map[queue.SegmentID]bool

	pass, passes uint32
	end          queue.Position // end of the first pass and of all others
	segments     []segmentUsage // ascending
	newest       map[idHash]newestVersion
}

// errUsageEnd ends a pass at the end of the first one.
var errUsageEnd = errors.New("queue: end of the first pass")

func (u *usageScan) run(ctx context.Context, r *queue.Reader, memoryBytes int64) error {
	if memoryBytes <= 0 {
		memoryBytes = DefaultUsageMemory
	}
	segments, err := r.Segments()
	if err != nil {
		return err
	}
	var entries int64
	for _, s := range segments {
		entries += s.Entries
	}
	passes := entries*usageBytesPerID/memoryBytes + 1
	if passes > maxUsagePasses {
		return errors.Newf("queue: accounting for %d entries in %d bytes of memory takes %d passes, at most %d are made: give it %d bytes",
			entries, memoryBytes, passes, maxUsagePasses, entries*usageBytesPerID/maxUsagePasses+1)
	}
	u.passes = uint32(passes)
	for u.pass = range u.passes {
		if err := u.read(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (u *usageScan) read(ctx context.Context, r *queue.Reader) error {
	u.newest = make(map[idHash]newestVersion)
	if u.pass > 0 && u.end.IsZero() {
		return nil
	}
	err := r.Scan(ctx, queue.Position{Queue: u.end.Queue}, func(e queue.Entry) error {
		u.add(&e)
		switch {
		case u.pass == 0:
			u.end = e.Next
		case e.Next.SamePlace(u.end):
			return errUsageEnd
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUsageEnd) {
		return err
	}
	for _, v := range u.newest {
		s := u.segment(v.segment)
		switch v.kind() {
		case versionLive:
			s.LiveDocuments++
			s.LiveBytes += v.bytes()
		case versionCanary:
			s.LiveBytes += v.bytes()
		case versionDelete:
			if v.first > 0 && v.first < v.segment || u.deletesStay > 0 && v.segment >= u.deletesStay {
				s.needed += v.bytes()
			}
		}
	}
	return nil
}

// segment finds a segment that was added before.
func (u *usageScan) segment(n queue.SegmentID) *segmentUsage {
	i, _ := slices.BinarySearchFunc(u.segments, n, func(s segmentUsage, n queue.SegmentID) int { return cmp.Compare(s.Segment, n) })
	return &u.segments[i]
}

// add accounts for the next entry.
func (u *usageScan) add(e *queue.Entry) {
	bytes := int64(e.StoredBytes)
	if e.Deleted {
		bytes = int64(segment.EntryBytes + len(e.ID))
	}
	if u.pass == 0 {
		if n := len(u.segments); n == 0 || u.segments[n-1].Segment != e.Address.Segment {
			u.segments = append(u.segments, segmentUsage{Usage: Usage{Segment: e.Address.Segment}})
		}
		s := &u.segments[len(u.segments)-1]
		if e.Deleted {
			s.deleteBytes += bytes
		} else {
			s.Documents++
			s.StoredBytes += bytes
		}
	}
	sum := sha256.Sum256(e.ID)
	if u.passes > 1 && segment.Little.Uint32(sum[16:])%u.passes != u.pass {
		return
	}
	id := idHash(sum[:16])
	before, known := u.newest[id]
	if known {
		u.supersede(before, e)
	}
	v := newestVersion{segment: e.Address.Segment, first: before.first, weight: uint32(bytes)}
	if !e.Deleted && v.first == 0 {
		v.first = v.segment
	}
	switch {
	case e.Deleted:
		v.weight |= versionDelete
	case !e.Expires.IsZero() && !u.now.Before(e.Expires):
		v.weight |= versionExpired
		if !e.Expires.After(u.deadBefore) {
			u.segment(v.segment).erasable = true
		}
	case canary.Is(e.ID):
		v.weight |= versionCanary
	}
	u.newest[id] = v
}

// supersede accounts for an entry that a later one replaces.
func (u *usageScan) supersede(before newestVersion, e *queue.Entry) {
	ends := retainedBetween(u.ends, before.segment, e.Address.Segment)
	erasable := before.kind() != versionDelete && !e.Appended.After(u.deadBefore)
	switch {
	case len(ends) == 0:
		s := u.segment(before.segment)
		s.erasable = s.erasable || erasable
	case before.kind() != versionExpired:
		u.segment(before.segment).needed += before.bytes()
	}
	if erasable {
		for _, end := range ends {
			u.held[end] = true
		}
	}
}

// retainedBetween returns the ends of states in which an entry is the newest of its id: those
// from its segment to before the segment of the next entry.
func retainedBetween(ends []queue.SegmentID, segment, next queue.SegmentID) []queue.SegmentID {
	from, _ := slices.BinarySearch(ends, segment)
	to, _ := slices.BinarySearch(ends, next)
	return ends[from:max(from, to)]
}
