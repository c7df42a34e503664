package core

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// BenchmarkArena steps many ladders over many boards, all carved from a few slices, as
// the fleet simulator does. A step is a lease request with its result, or a request.
func BenchmarkArena(b *testing.B) {
	for _, size := range []struct{ ladders, boards int }{{100, 10_000}, {10_000, 1_000_000}} {
		b.Run(fmt.Sprintf("ladders=%d/boards=%d", size.ladders, size.boards), func(b *testing.B) {
			a := newArena(size.ladders, size.boards)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				a.step(i)
			}
			b.ReportMetric(float64(a.bytes)/1e6, "MB")
		})
	}
}

const (
	arenaSlots = 100 // slots of a ladder
	arenaPeers = 128 // boards that a ladder uses
)

type arena struct {
	boards  []Board
	ladders []Ladder
	seekers []LeaseSeeker
	clock   []int64
	rng     rand.PCG
	bytes   uint64
}

func newArena(ladders, boards int) *arena {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := &arena{
		boards:  make([]Board, boards),
		ladders: make([]Ladder, ladders),
		seekers: make([]LeaseSeeker, ladders),
		clock:   make([]int64, ladders),
	}
	a.rng.Seed(1, 2)
	words := make([]uint64, boards)
	for i := range a.boards {
		a.boards[i] = NewBoard(words[i:i+1], 64)
	}
	slots := make([]Slot, ladders*(arenaSlots+1))
	peers := make([]Peer, ladders*arenaPeers)
	for i := range a.ladders {
		a.ladders[i] = NewLadder(arenaSlots, slots[i*(arenaSlots+1):][:arenaSlots+1], peers[i*arenaPeers:][:arenaPeers])
		for peer := range int32(arenaPeers) {
			a.ladders[i].Join(0, peer, &a.rng)
		}
	}
	runtime.ReadMemStats(&after)
	a.bytes = after.HeapAlloc - before.HeapAlloc
	return a
}

// board returns the board of a ladder's peer.
func (a *arena) board(ladder int, peer int32) *Board {
	return &a.boards[(ladder*arenaPeers+int(peer))%len(a.boards)]
}

func (a *arena) step(i int) {
	i %= len(a.ladders)
	l, r, rng := &a.ladders[i], &a.seekers[i], &a.rng
	if entry, ok := l.Acquire(a.clock[i], rng); ok {
		l.Release(a.clock[i], entry, Success, rng)
	}
	a.clock[i] = max(a.clock[i], r.Wake(l))
	now := a.clock[i]
	peer, below, ok := r.NextRequest(now, l, rng)
	if !ok {
		return
	}
	answer := Declined
	if number, ok := a.board(i, peer).Lease(below); ok {
		_, victim, gone, ok := l.Grant(peer, number)
		switch {
		case !ok:
			a.board(i, peer).Release(number)
		case gone:
			old, oldPeer, _, _, _ := l.Slot(victim)
			a.board(i, oldPeer).Release(old)
			fallthrough
		default:
			answer = Granted
		}
	}
	r.Done(now, l, peer, answer, rng)
}

func TestAStepAllocatesNothing(t *testing.T) {
	a := newArena(10, 1000)
	i := 0
	if n := testing.AllocsPerRun(5000, func() { a.step(i); i++ }); n != 0 {
		t.Fatalf("%v allocations a step", n)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, size := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			rng := rand.NewPCG(1, 2)
			l := NewLadder(size, make([]Slot, size+1), make([]Peer, 16))
			for peer := range int32(16) {
				l.Join(0, peer, rng)
			}
			for i := range int32(size) {
				l.RecordOutcome(0, i%16, Success, rng)
				l.Grant(i%16, i/16)
			}
			b.ReportAllocs()
			for b.Loop() {
				entry, _ := l.Acquire(0, rng)
				l.Release(0, entry, Success, rng)
			}
		})
	}
}
