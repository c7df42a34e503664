package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// What scripts/package sets with -ldflags -X: the version of the package, and commit and
// its time for builds that cannot read version control. Empty: Go's build information says.
var packageVersion, packageCommit, packageTime string

// A Build is what a program was built of.
type Build struct {
	Version string    // of the package or module, "(devel)" without one
	Commit  string    // its first twelve digits, or "unknown"
	Time    time.Time // of the commit, the Unix epoch where that is not known
}

// ThisBuild describes the running program.
func ThisBuild() Build {
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

// Version names this build: version and commit, and the Go that made it.
func Version() string {
	b := ThisBuild()
	return fmt.Sprintf("%s (commit %s, %s %s/%s)", b.Version, b.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

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
		b.Commit += " with changes"
	}
	return b
}

// setTime sets the time if the text is one.
func (b *Build) setTime(text string) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		b.Time = at
	}
}
