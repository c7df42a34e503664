package units

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFormatDuration(t *testing.T) {
	for want, got := range map[string]string{
		"0 s": FormatSeconds(0), "12 µs": FormatSeconds(12e-6), "3.5 ms": FormatSeconds(3.5e-3), "2.0 s": FormatSeconds(2),
		"1 min 5 s": FormatSeconds(65), "3 h 2 min": FormatDuration(3*time.Hour + 2*time.Minute), "2 d 1 h": FormatDuration(49 * time.Hour),
	} {
		require.Equal(t, want, got)
	}
}
