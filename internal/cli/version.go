package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Version names this build: the module's version, the commit it was made of and
// the Go that made it.
func Version() string {
	version, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, commit = describeBuild(info)
	}
	return fmt.Sprintf("%s (commit %s, %s %s/%s)", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commitTime is when the commit that this build was made of was made, the Unix epoch
// where that is not known.
func commitTime() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.time" {
				if at, err := time.Parse(time.RFC3339, setting.Value); err == nil {
					return at
				}
			}
		}
	}
	return time.Unix(0, 0).UTC()
}

func describeBuild(info *debug.BuildInfo) (version, commit string) {
	version, commit = info.Main.Version, "unknown"
	if version == "" {
		version = "(devel)"
	}
	modified := false
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			modified = setting.Value == "true"
		}
	}
	if modified {
		commit += " with changes"
	}
	return version, commit
}
