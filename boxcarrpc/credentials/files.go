package credentials

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// checkEvery is the minimum time between two checks of the files.
	checkEvery = time.Second
	// A file modified less than racyAge before it was read may have been modified
	// again with the same modification time.
	racyAge = 2 * time.Second
	// faultEvery is the interval of log messages about unusable files.
	faultEvery = time.Minute
	// maxFileBytes is the maximum size of a file.
	maxFileBytes = 4 << 20
)

// A fromFiles is a value that is loaded from files, again when one of them changes.
type fromFiles[T any] struct {
	paths []string
	load  func() (T, error)
	log   *slog.Logger
	now   func() time.Time

	// describe summarizes a value for the log, without secrets. It may be nil.
	describe func(T) string

	mu struct {
		sync.Mutex
		value   T
		loaded  time.Time     // when value was loaded
		checked time.Time     // when the files were last checked
		seen    []os.FileInfo // state of the files at that time, nil for a missing file
		racy    bool          // a file was younger than racyAge at that time
		failed  string        // error of the last load, empty after a success
		logged  time.Time     // when failed was logged
	}
}

// newFromFiles loads the value for the first time. log may be nil. Empty paths are
// ignored.
func newFromFiles[T any](log *slog.Logger, load func() (T, error), paths ...string) (*fromFiles[T], error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == "" })
	f := &fromFiles[T]{paths: paths, load: load, log: log, now: time.Now}
	f.check(f.now())
	var err error
	f.mu.value, err = load()
	f.mu.loaded = f.now()
	return f, err
}

// get returns the value, loaded from files that were checked at most checkEvery ago.
func (f *fromFiles[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if now.Sub(f.mu.checked) < checkEvery {
		return f.mu.value
	}
	again := f.mu.failed != "" || f.mu.racy
	changed := f.check(now)
	if !changed && !again {
		return f.mu.value
	}
	value, err := f.load()
	if err != nil {
		f.fault(now, err)
		return f.mu.value
	}
	f.mu.value, f.mu.failed, f.mu.loaded = value, "", now
	if changed {
		f.log.Info("reloaded credentials", "files", f.paths, "in_force", f.inForce())
	}
	return f.mu.value
}

// fault logs that the files are unusable, when the error changes and every minute. f.mu
// is held.
func (f *fromFiles[T]) fault(now time.Time, err error) {
	if err.Error() != f.mu.failed || now.Sub(f.mu.logged) >= faultEvery {
		f.log.Error("cannot reload credentials; the previous ones stay in use; repair the files",
			"error", err, "in_force", f.inForce(), "read", f.mu.loaded.UTC().Format(time.RFC3339))
		f.mu.logged = now
	}
	f.mu.failed = err.Error()
}

// inForce describes the value. f.mu is held.
func (f *fromFiles[T]) inForce() string {
	if f.describe == nil {
		return fmt.Sprintf("%d files", len(f.paths))
	}
	return f.describe(f.mu.value)
}

// check reports whether a file has changed since the last check. f.mu is held.
func (f *fromFiles[T]) check(now time.Time) (changed bool) {
	f.mu.checked, f.mu.racy = now, false
	before := f.mu.seen
	f.mu.seen = make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			changed = true // loading it returns the error
			continue
		}
		f.mu.seen[i] = info
		f.mu.racy = f.mu.racy || now.Sub(info.ModTime()) < racyAge
		if before != nil && !sameFile(before[i], info) {
			changed = true
		}
	}
	return changed
}

func sameFile(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readFile reads a file of at most maxFileBytes.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read-only
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFileBytes)
	}
	return content, err
}
