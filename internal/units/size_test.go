package units

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "4096B": 4096, "64MiB": 64 << 20, "64mib": 64 << 20, "64 MB": 64e6, "64M": 64 << 20,
		"1.5G": 3 << 29, "2TB": 2e12, "8k": 8 << 10,
	} {
		var s Size
		require.NoError(t, s.Set(text), text)
		require.Equal(t, want, int64(s), text)
	}
	for _, text := range []string{"", "MiB", "-1", "1e30T", "much", "NaN", "1 2"} {
		var s Size
		require.Error(t, s.Set(text), text)
	}
}

func TestSizeInHelp(t *testing.T) {
	s := Size(64 << 20)
	require.Equal(t, "64MiB", s.String())
}

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 5 << 50: "5120 TiB"} {
		require.Equal(t, want, FormatBytes(n))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		require.Equal(t, want, FormatCount(n))
	}
	for n, want := range map[int64]string{0: "0 entries", 1: "1 entry", 2: "2 entries", 1000: "1,000 entries"} {
		require.Equal(t, want, FormatCountOf(n, "entry", "entries"))
	}
}

// TestSizeIsExact: a size is not rounded in a message.
func TestSizeIsExact(t *testing.T) {
	for text, want := range map[string]string{"32KiB": "32KiB", "32767": "32767", "1.5G": "1.5GiB", "64MB": "64000000", "0": "0B", "1023": "1023B"} {
		var s Size
		require.NoError(t, s.Set(text))
		require.Equal(t, want, s.String())
	}
}
