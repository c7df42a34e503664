package vfs

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGuardPassesOtherPanicsOn(t *testing.T) {
	var nothing *int
	var empty []int
	for name, fn := range map[string]func(){
		"error":       func() { panic(errors.New("mine")) },
		"nil pointer": func() { *nothing = 1 },
		"index":       func() { empty[0] = 1 },
	} {
		assert.Panics(t, func() { _ = Guard(fn) }, name)
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
