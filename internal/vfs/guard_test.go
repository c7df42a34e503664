package vfs

import (
	"errors"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/invariants"
)

func TestGuardPassesOtherPanicsOn(t *testing.T) {
	var nothing *int
	for name, fn := range map[string]func(){
		"error":       func() { panic(errors.New("mine")) },
		"nil pointer": func() { *nothing = 1 },
		"division":    func() { _ = 1 / len(os.Args[:0]) },
	} {
		assert.Panics(t, func() { _ = Guard(fn) }, name)
		assert.False(t, debug.SetPanicOnFault(false), name)
	}
}

// TestGuardReturnsAccessesOutOfBounds, except in invariant builds, which detect missing
// bounds checks.
func TestGuardReturnsAccessesOutOfBounds(t *testing.T) {
	short, length := []byte{1, 2}, 3
	for name, fn := range map[string]func(){
		"index": func() { short[length] = 1 },
		"slice": func() { _ = short[:length] },
		"order": func() { _ = short[length : length-2] },
	} {
		if invariants.Enabled {
			assert.Panics(t, func() { _ = Guard(fn) }, name)
			continue
		}
		err := Guard(fn)
		require.ErrorIs(t, err, ErrBounds, name)
		require.ErrorContains(t, err, "out of range", name)
		assert.False(t, debug.SetPanicOnFault(false), name)
	}
}

func TestGuardRunsTheFunction(t *testing.T) {
	ran := false
	require.NoError(t, Guard(func() { ran = true }))
	assert.True(t, ran)
}

func TestGuardNested(t *testing.T) {
	require.NoError(t, Guard(func() {
		require.NoError(t, Guard(func() {}))
		assert.True(t, debug.SetPanicOnFault(true), "the inner guard ended the outer one")
	}))
	assert.False(t, debug.SetPanicOnFault(false))
}

func TestGuardAllocatesNothing(t *testing.T) {
	source, target := make([]byte, 100), make([]byte, 100)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if err := Guard(func() { copy(target, source) }); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkGuard(b *testing.B) {
	source, target := make([]byte, 100), make([]byte, 100)
	b.Run("guarded=true", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := Guard(func() { copy(target, source) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded=false", func(b *testing.B) {
		for b.Loop() {
			copy(target, source)
		}
	})
}
