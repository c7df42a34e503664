package cli

import (
	"bytes"
	"slices"
	"sync"
)

// recentLogBytes is the size of a RecentLog.
const recentLogBytes = 256 << 10

// RecentLog keeps the latest lines of a log, up to 256 KiB. The zero value is empty. It is
// safe for concurrent use.
type RecentLog struct {
	mu struct {
		sync.Mutex
		lines [][]byte // oldest first
		bytes int
	}
}

// Write adds a line, as written by a logger.
func (r *RecentLog) Write(line []byte) (int, error) {
	mu := &r.mu
	mu.Lock()
	defer mu.Unlock()
	kept := bytes.Clone(bytes.TrimPrefix(line, []byte(clearLine)))
	mu.lines, mu.bytes = append(mu.lines, kept), mu.bytes+len(kept)
	dropped := 0
	for mu.bytes > recentLogBytes {
		mu.bytes -= len(mu.lines[dropped])
		dropped++
	}
	mu.lines = slices.Delete(mu.lines, 0, dropped)
	return len(line), nil
}

// String returns the lines, oldest first.
func (r *RecentLog) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(bytes.Join(r.mu.lines, nil))
}
