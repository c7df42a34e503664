package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailOfARecord(t *testing.T) {
	text := []byte(strings.Repeat("0123456789", 1000))
	for _, bytes := range []int{0, 1, tailBytes - 1, tailBytes, tailBytes + 1, len(text)} {
		record := text[:bytes]
		tail := tailOf(record)
		require.Equal(t, min(bytes, tailBytes), int(tail.Bytes))
		require.True(t, tail.isTailOf(record))
		if bytes < tailBytes {
			require.False(t, tail.isTailOf(append([]byte("x"), record...)), "a longer record with the same end")
		}
		if bytes > 0 {
			require.False(t, tail.isTailOf(append(record[:bytes-1:bytes-1], 'x')))
			require.Equal(t, bytes > tailBytes, tail.isTailOf(record[1:]))
		}
	}
	longer := sampleOf(text[len(text)-sampleBytes:])
	require.True(t, longer.isTailOf(text), "a sample of a larger tailBytes")
	require.False(t, longer.isTailOf(text[:len(text)-1]))
	require.False(t, longer.isTailOf(text[:100]))
}
