package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecentLog(t *testing.T) {
	var r RecentLog
	env := &Env{Stderr: &bytes.Buffer{}, Terminal: true, Now: time.Now, Recent: &r}
	log := env.NewLogger(&env.Level)
	for i := range 10_000 {
		log.Info("a line of some length, of which there are many", "number", i)
	}
	kept := r.String()
	require.LessOrEqual(t, len(kept), recentLogBytes)
	require.Greater(t, len(kept), recentLogBytes*9/10)
	require.True(t, strings.HasSuffix(kept, "number=9999\n"), "the newest")
	require.NotContains(t, kept, "\x1b")
}
