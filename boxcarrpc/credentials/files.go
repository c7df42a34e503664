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
	// No file is larger.
	maxFileBytes = 4 << 20
)

// A fromFiles is a value that is made of files, anew when one of them changes.
type fromFiles[T any] struct {
	paths []string
	load  func() (T, error)
	log   *slog.Logger
	now   func() time.Time

	mu struct {
		sync.Mutex
		value  T
		looked time.Time
		seen   []os.FileInfo // when they were read last, nil for one that was not there
		racy   bool          // one was changed just before that
		failed bool          // that has not made a value
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
	again := f.mu.failed || f.mu.racy
	changed := f.look(now)
	if !changed && !again {
		return f.mu.value
	}
	value, err := f.load()
	if err != nil {
		f.mu.failed = true
		f.log.Warn("credentials are not changed: their files cannot be used", "error", err)
		return f.mu.value
	}
	f.mu.value, f.mu.failed = value, false
	if changed {
		f.log.Info("credentials were read again", "files", f.paths)
	}
	return f.mu.value
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
