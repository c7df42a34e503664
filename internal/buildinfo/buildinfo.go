// Package buildinfo describes the sources of the running program.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Set by scripts/package with -ldflags -X: the version of the package, and commit and
// commit time for builds without version control. Empty: use Go's build information.
var packageVersion, packageCommit, packageTime string

// A Build describes the sources of a program.
type Build struct {
	Version string    // of the package or module, "(devel)" without one
	Commit  string    // twelve digits, or "unknown"
	Time    time.Time // of the commit; the Unix epoch if unknown
}

// This describes the running program.
func This() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	b := describeBuild(info)
	if packageVersion != "" {
		b.Version, b.Commit = packageVersion, packageCommit
		b.setTime(packageTime)
	}
	return b
}

// Version describes this build: version, commit and Go version.
func Version() string {
	b := This()
	return fmt.Sprintf("%s (commit %s, %s %s/%s)", b.Version, b.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// WithChanges ends the commit of a build of changed sources.
const WithChanges = " with changes"

func describeBuild(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Commit: "unknown", Time: time.Unix(0, 0).UTC()}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	modified := false
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			modified = setting.Value == "true"
		case "vcs.time":
			b.setTime(setting.Value)
		}
	}
	if modified {
		b.Commit += WithChanges
	}
	return b
}

// setTime sets the time if the text is a valid time.
func (b *Build) setTime(text string) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		b.Time = at
	}
}
