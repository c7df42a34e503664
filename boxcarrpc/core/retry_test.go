package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRetryBudgetIsAShareOfCalls(t *testing.T) {
	b := NewRetryBudget(0, 0.2, 0, 10)
	attempts := 0
	for range 10_000 {
		b.Deposit()
		for b.Withdraw(0) { // retry as often as possible
			attempts++
		}
	}
	require.InDelta(t, 10+2000, attempts, 1)
}

func TestTimeRefillsRetryBudget(t *testing.T) {
	b := NewRetryBudget(5e9, 0.2, 10, 3)
	take := func(now int64) (n int) {
		for b.Withdraw(now) {
			n++
		}
		return n
	}
	require.Equal(t, 3, take(5e9), "a budget starts full")
	require.Equal(t, 0, take(5e9+99e6))
	require.Equal(t, 1, take(5e9+100e6))
	require.Equal(t, 2, take(5e9+300e6))
	require.Equal(t, 3, take(3600e9), "a budget holds at most its burst")
	require.Equal(t, 3, take(never/2))
	for range 1000 {
		b.Deposit()
	}
	require.Equal(t, 3, take(never/2))
	none := NewRetryBudget(0, 0, 0, 0)
	require.True(t, none.Withdraw(0))
	require.False(t, none.Withdraw(never))
}
