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
	// Files are looked at as often as this, at most.
	lookEvery = time.Second
	// A file that was changed so shortly before it was read may have been changed
	// again within the resolution of its time.
	racyAge = 2 * time.Second
	// Files that cannot be used are reported as often as this.
	faultEvery = time.Minute
	// No file is larger.
	maxFileBytes = 4 << 20
)

// A fromFiles is a value that is made of files, anew when one of them changes.
type fromFiles[T any] struct {
	paths []string
	load  func() (T, error)
	log   *slog.Logger
	now   func() time.Time

	// describe says in a few words what a value has; nil for nothing. It never says
	// what is secret.
	describe func(T) string

	mu struct {
		sync.Mutex
		value  T
		loaded time.Time // when the value was made
		looked time.Time
		seen   []os.FileInfo // when they were read last, nil for one that was not there
		racy   bool          // one was changed just before that
		failed string        // why that has not made a value; empty if it has
		told   time.Time     // when that was logged
	}
}

// newFromFiles makes the value for the first time. log may be nil. Empty paths are
// passed over.
func newFromFiles[T any](log *slog.Logger, load func() (T, error), paths ...string) (*fromFiles[T], error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == "" })
	f := &fromFiles[T]{paths: paths, load: load, log: log, now: time.Now}
	f.look(f.now())
	var err error
	f.mu.value, err = load()
	f.mu.loaded = f.now()
	return f, err
}

// get returns the value as of a second ago at the most.
func (f *fromFiles[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if now.Sub(f.mu.looked) < lookEvery {
		return f.mu.value
	}
	again := f.mu.failed != "" || f.mu.racy
	changed := f.look(now)
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
		f.log.Info("credentials were read again", "files", f.paths, "in_force", f.inForce())
	}
	return f.mu.value
}

// fault logs that the files cannot be used, when the reason changes and each minute.
// f.mu is held.
func (f *fromFiles[T]) fault(now time.Time, err error) {
	if err.Error() != f.mu.failed || now.Sub(f.mu.told) >= faultEvery {
		f.log.Error("the files of credentials cannot be used: what was read before stays in force; repair the files",
			"error", err, "in_force", f.inForce(), "read", f.mu.loaded.UTC().Format(time.RFC3339))
		f.mu.told = now
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

// look reports whether a file has changed since the last look.
func (f *fromFiles[T]) look(now time.Time) (changed bool) {
	f.mu.looked, f.mu.racy = now, false
	before := f.mu.seen
	f.mu.seen = make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			changed = true // to be told why by reading it
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
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s: of more than %d bytes", path, maxFileBytes)
	}
	return content, err
}
