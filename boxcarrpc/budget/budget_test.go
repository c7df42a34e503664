package budget

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// clientNumber returns a client with its own address.
func clientNumber(n int) Client {
	return ClientAt(&net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(n)), Port: 1})
}

// checkBudget compares a budget with its open accounts.
func checkBudget(t *testing.T, b *Budget, open []*Account) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var used int64
	clients := make(map[*clientMemory]int64)
	for _, a := range open {
		credit := a.credit.Load() - freeBytes
		require.GreaterOrEqual(t, credit+freeBytes, a.used.Load(), "bytes without credit")
		require.LessOrEqual(t, credit, max(a.used.Load(), 0)+2*chunkBytes, "credit without bytes")
		used += credit
		require.True(t, a.left || !a.closed || credit > 0)
		if !a.left {
			clients[a.client.Load()] += credit
			_, holds := a.client.Load().holders[a]
			require.Equal(t, credit > 0, holds)
		}
	}
	require.Equal(t, used, b.mu.used)
	require.Len(t, b.mu.clients, len(clients))
	for c, used := range clients {
		require.Equal(t, used, c.used)
		require.Equal(t, used > b.share/4*3, c.tight.Load())
	}
}

func TestBudgetAccounting(t *testing.T) {
	rng := testseed.Rand(t)
	b := New(4 << 20)
	var all []*Account
	held := make(map[*Account]int64)
	for range 500 {
		if len(all) == 0 || rng.IntN(20) == 0 {
			all = append(all, b.Open(clientNumber(rng.IntN(4)), func() {}))
		}
		a := all[rng.IntN(len(all))]
		n := rng.Int64N(1 << rng.IntN(20))
		switch rng.IntN(6) {
		case 0, 1:
			a.Charge(n)
			held[a] += n
		case 2:
			if a.TryReserve(n) {
				held[a] += n
			}
		case 3:
			n = min(n, held[a])
			a.Release(n)
			held[a] -= n
		case 4:
			a.Identify(clientNumber(rng.IntN(4)))
		case 5:
			if rng.IntN(4) == 0 {
				a.Close()
			}
		}
		require.Equal(t, held[a], a.used.Load())
		checkBudget(t, b, all)
	}
	for _, a := range all {
		a.Close()
		a.Release(held[a])
		require.ErrorIs(t, a.Reserve(t.Context(), 1), errReservationClosed)
	}
	require.Zero(t, b.Stats().Used)
	require.Empty(t, b.mu.clients)
}

// Concurrent charges and releases lose no credit.
func TestBudgetConcurrency(t *testing.T) {
	rng := testseed.Rand(t)
	b := New(1 << 20)
	var wg sync.WaitGroup
	for i := range 8 {
		a, size := b.Open(clientNumber(i%3), func() {}), 1+rng.Int64N(200<<10)
		for range 2 {
			wg.Go(func() {
				for range 500 {
					if err := a.Reserve(t.Context(), size); err != nil {
						t.Error(err)
					}
					a.Charge(100)
					a.Release(size + 100)
				}
			})
		}
	}
	wg.Wait()
	require.Zero(t, b.Stats().Used)
}

// A client that holds its share waits; another client does not.
func TestAClientHoldsItsShareOfTheBudget(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		one, same, other := b.Open(clientNumber(1), nil), b.Open(clientNumber(1), nil), b.Open(clientNumber(2), nil)
		require.True(t, one.TryReserve(20<<20), "one message of any size")
		require.False(t, one.TryReserve(1))
		require.False(t, same.TryReserve(1))
		require.False(t, same.BelowShare(0))
		require.True(t, one.BelowShare(20<<20), "the message can be finished")
		require.False(t, other.TryReserve(1), "the budget is exceeded")
		require.True(t, other.BelowShare(0), "but another client's requests are taken")

		ctx, cancel := context.WithTimeout(t.Context(), maxReservationWait/2)
		defer cancel()
		require.ErrorIs(t, same.Reserve(ctx, 1), context.DeadlineExceeded)
		waits := make(chan error, 1)
		go func() { waits <- same.Reserve(t.Context(), 1<<20) }()
		synctest.Wait()
		require.Empty(t, waits)
		one.Release(20 << 20)
		require.NoError(t, <-waits)
		require.Equal(t, int64(1<<20), b.Stats().Used)
	})
}

// A client that reconnected while handlers held its bytes had its whole share again.
func TestBytesOfRunningHandlersCountForTheirClient(t *testing.T) {
	b := New(8 << 20)
	gone, again := b.Open(clientNumber(1), nil), b.Open(clientNumber(1), nil)
	require.True(t, gone.TryReserve(b.share))
	gone.Close()
	require.False(t, again.TryReserve(1))
	require.False(t, again.BelowShare(0))
	again.Close()
	again = b.Open(clientNumber(1), nil)
	require.False(t, again.BelowShare(0))
	gone.Release(b.share / 2)
	require.True(t, again.TryReserve(1))
	gone.Release(b.share / 2)
	again.Release(1)
	again.Close()
	require.Empty(t, b.mu.clients)
	require.Zero(t, b.Stats().Used)
}

// When the budget is used up, the peers that have been slow for longest are disconnected.
// Peers that make progress, and peers with nothing to transfer, stay.
func TestTheSlowestPeersAreDisconnected(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		var cut []int
		accounts := make([]*Account, 6)
		for i := range accounts {
			accounts[i] = b.Open(clientNumber(i), func() { cut = append(cut, i) })
			time.Sleep(time.Second)
			accounts[i].Charge(2 << 20)
			switch i {
			case 0: // has nothing to transfer
			case 1: // makes progress
				accounts[i].Await(2 << 20)
			default:
				accounts[i].Await(2 << 20)
				accounts[i].Moved(100)
			}
			accounts[1].Moved(chunkBytes)
		}
		require.Equal(t, []int{2, 3}, cut)
		require.Equal(t, uint64(2), b.Stats().Disconnected)
		require.ErrorIs(t, accounts[2].Reserve(t.Context(), 1), errReservationClosed)
		for _, i := range cut {
			accounts[i].Close()
			accounts[i].Release(2 << 20)
		}
		checkBudget(t, b, accounts)

		// Far above the budget a peer is disconnected before it is slow.
		time.Sleep(time.Millisecond)
		accounts[1].Moved(chunkBytes) // the most recent progress of all
		accounts[5].Await(1)
		accounts[5].Charge(8<<20 + MaxMessageBytes)
		require.Equal(t, []int{2, 3, 4, 5}, cut)
	})
}

// A reservation does not wait longer than it takes for a peer to become slow and be
// disconnected.
func TestAReservationDoesNotWaitForASlowPeer(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		slow := b.Open(clientNumber(1), nil)
		slow.cut = func() { slow.Close(); slow.Release(9 << 20) }
		slow.Charge(9 << 20)
		slow.Await(9 << 20)
		start := time.Now()
		require.NoError(t, b.Open(clientNumber(2), nil).Reserve(t.Context(), 1<<20))
		require.Less(t, time.Since(start), 2*patience)
	})
}

// A client has connections without an account.
func TestANilAccountCountsNothing(t *testing.T) {
	var a *Account
	a.Charge(1)
	a.Change(-1)
	a.Release(1)
	a.Await(1)
	a.Moved(1)
	require.False(t, a.Tight())
}

func BenchmarkAccount(b *testing.B) {
	for _, size := range []int64{1 << 10, 20 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			budget := New(1 << 30)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				a := budget.Open(clientNumber(1), nil)
				for pb.Next() {
					a.Charge(size)
					a.Release(size)
				}
			})
		})
	}
}
