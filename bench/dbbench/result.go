package main

import (
	"fmt"
	"strings"
	"time"

	"docstore/bench/internal/machine"
)

// result is one phase of one engine.
type result struct {
	Engine  string  `json:"engine"`
	Phase   string  `json:"phase"`
	Ops     int     `json:"ops"`
	Seconds float64 `json:"seconds"`
	// CPUSeconds is what all threads of the process took of all processors. It
	// varies less than Seconds where the machine is not quiet.
	CPUSeconds float64 `json:"cpu_seconds"`
	// Others is the share of all processors that other processes took.
	Others float64 `json:"others"`
	// PeakAnonymous is the most anonymous memory of the process, seen every few
	// milliseconds since it began; PeakResident counts mapped pages too.
	PeakAnonymous int64 `json:"peak_anonymous_bytes"`
	PeakResident  int64 `json:"peak_resident_bytes"`
	// ReadBytes and WrittenBytes are what the process had the disk read, and what it
	// handed to the kernel to be written, mapped files too.
	ReadBytes    int64 `json:"read_bytes"`
	WrittenBytes int64 `json:"written_bytes"`
	// UserBytes are those of the keys and values of Ops entries.
	UserBytes int64 `json:"user_bytes"`
	// Amplification is how often the phase's bytes were written to tables, and
	// RuleAmplification how often the rule says, if the engine knows.
	Amplification     float64 `json:"amplification,omitempty"`
	RuleAmplification float64 `json:"rule_amplification,omitempty"`
	// P50, P99 and P999 are of operations, with -histogram.
	P50  time.Duration `json:"p50_ns,omitempty"`
	P99  time.Duration `json:"p99_ns,omitempty"`
	P999 time.Duration `json:"p999_ns,omitempty"`
}

func (r result) rate() float64 { return float64(r.Ops) / r.Seconds }

// writes tells whether a phase's bytes written are to be told.
func (r result) writes() bool {
	return strings.HasPrefix(r.Phase, "fill") || strings.HasPrefix(r.Phase, "overwrite")
}

func (r result) String() string {
	ops := float64(r.Ops)
	s := fmt.Sprintf("%-10s %-22s %10.0f ops/s %8.1f ns/op %8.1f ns/op of processors  anonymous %d MB, resident %d MB",
		r.Engine, r.Phase, r.rate(), 1e9/r.rate(), 1e9*r.CPUSeconds/ops, r.PeakAnonymous>>20, r.PeakResident>>20)
	if r.ReadBytes > 0 {
		s += fmt.Sprintf("  read %.0f bytes/op", float64(r.ReadBytes)/ops)
	}
	if r.writes() {
		s += fmt.Sprintf("  written %.2f times", float64(r.WrittenBytes)/float64(r.UserBytes))
	}
	if r.Amplification > 0 {
		s += fmt.Sprintf("  tables %.2f times, by the rule %.2f", r.Amplification, r.RuleAmplification)
	}
	if r.P50 > 0 {
		s += fmt.Sprintf("  p50 %v p99 %v p99.9 %v", r.P50, r.P99, r.P999)
	}
	for _, warning := range machine.BusyWarnings(r.Others) {
		s += "  WARNING: " + warning
	}
	return s
}

// goBenchmark is the result as a line of go test -bench, which benchstat reads.
func (r result) goBenchmark() string {
	ops := float64(r.Ops)
	phase, threads, ok := strings.Cut(r.Phase, ":")
	if !ok {
		threads = "1"
	}
	s := fmt.Sprintf("Benchmark%s%s/engine=%s/threads=%s %d %.1f ns/op %.1f cpu-ns/op %.0f ops/s",
		strings.ToUpper(phase[:1]), phase[1:], r.Engine, threads, r.Ops, 1e9/r.rate(), 1e9*r.CPUSeconds/ops, r.rate())
	if r.P50 > 0 {
		s += fmt.Sprintf(" %d p50-ns %d p99-ns %d p99.9-ns", r.P50, r.P99, r.P999)
	}
	return s
}

// figures are the result's for the report.
func (r result) figures() map[string]float64 {
	ops := float64(r.Ops)
	f := map[string]float64{
		"ops/s": r.rate(), "cpu ns": 1e9 * r.CPUSeconds / ops, "seconds": r.Seconds, "others": r.Others,
		"anonymous bytes": float64(r.PeakAnonymous), "resident bytes": float64(r.PeakResident),
		"read bytes": float64(r.ReadBytes) / ops,
	}
	if r.writes() {
		f["written bytes"] = float64(r.WrittenBytes)
		f["written times"] = float64(r.WrittenBytes) / float64(r.UserBytes)
	}
	if r.Amplification > 0 {
		f["amplification"], f["rule amplification"] = r.Amplification, r.RuleAmplification
	}
	if r.P50 > 0 {
		f["p50 ns"], f["p99 ns"], f["p999 ns"] = float64(r.P50), float64(r.P99), float64(r.P999)
	}
	return f
}
