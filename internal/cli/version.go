package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
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
