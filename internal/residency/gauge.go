package residency

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// A group of reads that takes longer may have waited for the disk: a page takes 60 us
	// or more, an entry or a document in memory about one.
	slowGroup = 50 * time.Microsecond
	slowRead  = 10 * time.Microsecond // more for each read of the group
	// coldGroups is the number of groups that are cold after the last one that read from
	// the disk. It bounds what a burst of cold reads costs later ones.
	coldGroups = 16
	// coldReadsPerPage: a group is cold if it read at least a page for so many reads of it.
	// With fewer, reading ahead costs more than the overlap saves.
	coldReadsPerPage = 16
	// sampledReads: one of so many single reads is timed while none is cold.
	sampledReads = 64
)

// Gauge tells which groups of reads are likely to wait for the disk. The zero Gauge is
// ready. It is safe for concurrent use.
//
// While all reads are fast it only takes the time of each group. After a slow one it counts
// the pages that this process reads from the disk during the next group. If there are
// enough, the groups after it are cold until coldGroups of them have read fewer.
type Gauge struct {
	left atomic.Int32 // groups whose pages are still counted; those before the last are cold
	cold latencies
}

// sharing tells whether several goroutines read from the disk at the same time, with any
// gauge: a page fault blocks the processor for all of them.
var sharing struct {
	reading atomic.Int32 // cold groups in progress
	left    atomic.Int32 // cold groups that count as shared although no other was in progress
}

// sharedGroups is the number of cold groups after the last concurrent ones that still count
// as shared.
const sharedGroups = 64

// Group is a group of reads in progress.
type Group struct {
	gauge   *Gauge // nil: it is not timed
	left    int32  // of the gauge at the begin
	started time.Duration
	pages   uint64 // of this process at the begin, if left > 0
}

// Begin begins a group of reads.
func (g *Gauge) Begin() Group {
	if !Supported {
		return Group{}
	}
	group := Group{gauge: g, left: g.left.Load(), started: now()}
	if group.left > 0 {
		group.pages = pagesRead()
	}
	if group.IsCold() {
		if left := sharing.left.Load(); sharing.reading.Add(1) > 1 {
			sharing.left.Store(sharedGroups)
		} else if left > 0 {
			sharing.left.CompareAndSwap(left, left-1)
		}
	}
	return group
}

// BeginOne begins a group of one read. While none is cold, most of these groups are not
// timed, since that would take as long as a part of the read.
func (g *Gauge) BeginOne() Group {
	if !Supported || g.left.Load() == 0 && rand.Uint32()%sampledReads != 0 {
		return Group{}
	}
	return g.Begin()
}

// IsCold reports whether the next group is likely to wait for the disk.
func (g *Gauge) IsCold() bool { return g.left.Load() > 1 }

// IsCold reports whether the group is likely to wait for the disk.
func (g *Group) IsCold() bool { return g.left > 1 }

// Yield lets goroutines run that ask for other cold reads, if there are any, before this one
// waits for the disk. The reads then overlap: a page fault blocks its processor for other
// goroutines. It is called after reading ahead.
func (g *Group) Yield() {
	if g.IsShared() {
		runtime.Gosched()
	}
}

// IsShared reports whether the group is cold and others are in progress, or were recently.
func (g *Group) IsShared() bool { return g.IsCold() && sharing.left.Load() > 0 }

// End ends a group of n reads.
func (g *Group) End(n int) {
	if g.gauge == nil {
		return
	}
	if g.IsCold() {
		sharing.reading.Add(-1)
	}
	took, pages := now()-g.started, uint64(0)
	if g.left > 0 {
		pages = pagesRead() - g.pages
	}
	g.end(n, took, pages)
}

func (g *Group) end(n int, took time.Duration, pages uint64) {
	left := &g.gauge.left
	switch {
	case g.left == 0:
		if took > slowGroup+time.Duration(n)*slowRead {
			left.CompareAndSwap(0, 1)
		}
	case pages > 0 && pages*coldReadsPerPage >= uint64(n):
		left.Store(1 + coldGroups)
		g.gauge.cold.add(took)
	default:
		left.CompareAndSwap(g.left, g.left-1)
	}
}

// ColdReads returns the latencies of the groups that were known to read from the disk.
func (g *Gauge) ColdReads() Latencies { return g.cold.load() }

var start = time.Now()

// now is the time since start, which takes half as long as time.Now.
func now() time.Duration { return time.Since(start) }
