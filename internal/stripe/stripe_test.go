package stripe

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwn: concurrent goroutines are spread over the stripes.
func TestOwn(t *testing.T) {
	const goroutines = 8 * Count
	var seen [Count]atomic.Int32
	var running sync.WaitGroup
	all := make(chan struct{})
	var begun sync.WaitGroup
	begun.Add(goroutines)
	for range goroutines {
		running.Go(func() {
			seen[Own()].Add(1)
			begun.Done()
			<-all // so that all stacks exist at the same time
		})
	}
	begun.Wait()
	close(all)
	running.Wait()
	used := 0
	for i := range seen {
		if seen[i].Load() > 0 {
			used++
		}
	}
	require.Greater(t, used, Count/2)
}

// TestReaders: a guarded object is never used after its release, and is released.
func TestReaders(t *testing.T) {
	type thing struct {
		readers  Readers
		hidden   atomic.Bool
		gone     atomic.Bool
		vanished atomic.Int32
	}
	vanish := func(x *thing) {
		if x.hidden.Load() && x.readers.None() && !x.gone.Swap(true) {
			x.vanished.Add(1)
		}
	}
	var current atomic.Pointer[thing]
	current.Store(new(thing))
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 20_000 {
				x := current.Load()
				x.readers.Enter()
				if current.Load() == x && x.gone.Load() {
					t.Error("used after its release")
				}
				x.readers.Leave()
				vanish(x)
			}
		})
	}
	things := make([]*thing, 2_000)
	for i := range things {
		things[i] = current.Swap(new(thing))
		things[i].hidden.Store(true)
		vanish(things[i])
	}
	running.Wait()
	for _, x := range things {
		require.EqualValues(t, 1, x.vanished.Load())
	}
}

func BenchmarkReaders(b *testing.B) {
	var r Readers
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r.Enter()
			r.Leave()
		}
	})
	require.True(b, r.None())
}
