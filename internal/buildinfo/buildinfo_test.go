package buildinfo

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDescribeBuild(t *testing.T) {
	at := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}, {Key: "vcs.time", Value: at.Format(time.RFC3339)},
	}}
	require.Equal(t, Build{"(devel)", "0123456789ab with changes", at}, describeBuild(info))
	require.Equal(t, Build{"v1.2.3", "unknown", time.Unix(0, 0).UTC()}, describeBuild(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}))
}
