package parquet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// mergeGap is the maximum number of unneeded bytes between two ranges that are read together:
// a request to a bucket takes longer.
const mergeGap = 256 << 10

// span is a range of a file.
type span struct{ from, to int64 }

// merged returns the spans in ascending order, and near ones as one.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var all []span
	for _, s := range spans {
		if n := len(all); n > 0 && s.from-all[n-1].to <= mergeGap {
			all[n-1].to = max(all[n-1].to, s.to)
		} else {
			all = append(all, s)
		}
	}
	return all
}

// size returns the number of bytes of merged spans.
func size(spans []span) (bytes int64) {
	for _, s := range spans {
		bytes += s.to - s.from
	}
	return bytes
}

// window is a file with some ranges in memory.
type window struct {
	r      io.ReaderAt
	memory []byte
	loaded []part
}

// part is a range in memory.
type part struct {
	from int64
	data []byte
}

// hold makes a range that is in memory the only one.
func (w *window) hold(from int64, data []byte) { w.loaded = []part{{from, data}} }

// load reads merged spans into memory, instead of the present ranges.
func (w *window) load(spans []span) error {
	w.loaded = nil
	bytes := size(spans)
	if int64(cap(w.memory)) < bytes {
		w.memory = nil // so that the old memory can be freed first
		w.memory = make([]byte, bytes)
	}
	rest := w.memory[:bytes]
	for _, s := range spans {
		data := rest[: s.to-s.from : s.to-s.from]
		rest = rest[len(data):]
		if n, err := w.r.ReadAt(data, s.from); n < len(data) {
			return fmt.Errorf("reading %d bytes at offset %d: %w", len(data), s.from, err)
		}
		w.loaded = append(w.loaded, part{s.from, data})
	}
	return nil
}

// find returns a range if all of it is in memory.
func (w *window) find(from, length int64) ([]byte, bool) {
	for _, p := range w.loaded {
		if start := from - p.from; start >= 0 && start+length <= int64(len(p.data)) {
			return p.data[start : start+length], true
		}
	}
	return nil, false
}

// ReadAt implements io.ReaderAt.
func (w *window) ReadAt(p []byte, offset int64) (int, error) {
	if data, ok := w.find(offset, int64(len(p))); ok {
		return copy(p, data), nil
	}
	return w.r.ReadAt(p, offset)
}
