//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"docstore/internal/ctxtime"
)

const (
	// samplesFile has a line of JSON for each sample, in the directory of a run.
	samplesFile = "samples.ndjson"
	// samplesOfRun is the number of samples of a run.
	samplesOfRun = 1_000
	// minSampleInterval is the minimum time between two samples.
	minSampleInterval = 500 * time.Millisecond
	// blockBytes is the unit of the blocks of a file.
	blockBytes = 512
)

// sample is a line of samplesFile. bench/longrun draws the samples.
type sample struct {
	Seconds   float64                  `json:"seconds"`     // since the begin of the run
	State     int                      `json:"state"`       // of the collection, announced
	Gets      int                      `json:"gets"`        // since the last sample
	P50       float64                  `json:"p50_seconds"` // of these
	P99       float64                  `json:"p99_seconds"`
	Max       float64                  `json:"max_seconds"`
	Disk      map[string]int64         `json:"disk_bytes"` // allocated, of parts of the directory
	Processes map[string]processSample `json:"processes"`  // those that run
}

// processSample is the use of resources by a process.
type processSample struct {
	Resident    int64 `json:"resident_bytes"`
	Descriptors int   `json:"descriptors"`
}

// sampleRegularly takes samples until ctx ends.
func (r *longRun) sampleRegularly(ctx context.Context) {
	for ctxtime.Sleep(ctx, max(minSampleInterval, r.duration/samplesOfRun)) {
		if err := errors.Join(r.sample(), r.save()); err != nil {
			r.account.violated(err)
			return
		}
	}
}

// sample appends a sample to the file.
func (r *longRun) sample() error {
	times := r.account.takeTimes()
	r.mu.Lock()
	s := sample{Seconds: r.elapsed().Seconds(), State: r.mu.announced, Gets: len(times), Disk: map[string]int64{}, Processes: map[string]processSample{}}
	r.mu.Unlock()
	if n := len(times); n > 0 {
		s.P50, s.P99, s.Max = times[n/2].Seconds(), times[n*99/100].Seconds(), times[n-1].Seconds()
	}
	for name, pid := range r.f.pids() {
		if one, ok := sampleProcess(pid); ok {
			s.Processes[name] = one
		}
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if s.Disk[e.Name()], err = allocated(filepath.Join(r.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(r.dir, samplesFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// sampleProcess returns false if the process has ended.
func sampleProcess(pid int) (s processSample, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return s, false
	}
	_, after, _ := strings.Cut(string(status), "\nVmRSS:")
	var kilobytes int64
	if _, err := fmt.Sscanf(after, "%d kB", &kilobytes); err != nil {
		return s, false // a zombie has none
	}
	descriptors, err := os.ReadDir(filepath.Join(dir, "fd"))
	return processSample{Resident: kilobytes << 10, Descriptors: len(descriptors)}, err == nil
}

// allocated returns the bytes that the files below a directory use. Files may be removed
// meanwhile.
func allocated(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				bytes += info.Sys().(*syscall.Stat_t).Blocks * blockBytes
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, err
}
