// Package machine describes the conditions of a benchmark: the machine, the commit, and what
// distorts the figures.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"docstore/internal/buildinfo"
)

// Name returns a description of the machine and the compiler.
func Name() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	memory := ""
	if kilobytes := firstNumber("/proc/meminfo", "MemTotal:"); kilobytes > 0 {
		memory = fmt.Sprintf(", %.0f GiB", float64(kilobytes)/(1<<20))
	}
	return fmt.Sprintf("%d x %s%s, %s/%s %s, %s", runtime.NumCPU(), processor(), memory,
		runtime.GOOS, runtime.GOARCH, strings.TrimSpace(string(kernel)), runtime.Version())
}

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, ok := strings.Cut(string(info), "model name")
	if !ok {
		return "unknown processor"
	}
	name, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
}

// Commit returns the commit of the program, or under go run that of the working directory. A +
// means uncommitted changes.
var Commit = sync.OnceValue(func() string {
	commit, changed := strings.CutSuffix(buildinfo.This().Commit, buildinfo.WithChanges)
	if changed {
		return commit + "+"
	}
	out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*").Output()
	if commit == "unknown" && err == nil {
		return strings.TrimSpace(string(out))
	}
	return commit
})

// BuildWarnings returns the build flags that make this program slow.
func BuildWarnings() (warnings []string) {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, setting := range build.Settings {
		switch {
		case setting.Key == "-race" && setting.Value == "true":
			warnings = append(warnings, "built with the race detector")
		case setting.Key == "-tags" && slices.Contains(strings.Split(setting.Value, ","), "invariants"):
			warnings = append(warnings, "built with invariants checked")
		case setting.Key == "-gcflags" && strings.Contains(setting.Value, "-N"):
			warnings = append(warnings, "built without optimisation")
		}
	}
	return warnings
}

// maxOthers is the maximum share of all processors for other processes without a warning.
const maxOthers = 0.1

// A Watch measures the processor time of other processes during a measurement.
type Watch struct {
	start time.Time
	busy  time.Duration
	own   time.Duration
}

// NewWatch starts a watch. own is the processor time of all measured processes so far.
func NewWatch(own time.Duration) Watch { return Watch{time.Now(), busy(), own} }

// Others returns the share of all processors, from 0 to 1, that other processes took since the start.
// own is the processor time of the measured processes so far.
func (w Watch) Others(own time.Duration) float64 {
	return othersShare(busy()-w.busy, own-w.own, time.Since(w.start), runtime.NumCPU())
}

func othersShare(busy, own, elapsed time.Duration, processors int) float64 {
	if elapsed <= 0 {
		return 0
	}
	return min(1, max(0, float64(busy-own)/float64(elapsed)/float64(processors)))
}

// BusyWarnings returns a warning if other processes took more than maxOthers.
func BusyWarnings(others float64) []string {
	if others <= maxOthers {
		return nil
	}
	return []string{fmt.Sprintf("others took %.0f %% of the processors", 100*others)}
}

// clockTick is the unit of processor time in /proc.
const clockTick = time.Second / 100

// busy returns the time that all processors have worked so far, 0 if it is unknown.
func busy() (total time.Duration) {
	content, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(content), "\n")
	for i, field := range strings.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal guest...: user includes
		// guest.
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		ticks, _ := strconv.ParseInt(field, 10, 64)
		total += time.Duration(ticks) * clockTick
	}
	return total
}

// firstNumber returns the number after a field of a file in /proc, 0 if there is none.
func firstNumber(name, field string) int64 {
	content, _ := os.ReadFile(name)
	_, rest, _ := strings.Cut(string(content), field)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n
}
