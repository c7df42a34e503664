package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A Range is a part of a representation.
type Range struct {
	First, Length int
}

// ContentRange returns the value of Content-Range in a representation of that size.
func (r Range) ContentRange(size int) string {
	return fmt.Sprintf("bytes %d-%d/%d", r.First, r.First+r.Length-1, size)
}

// ParseRange returns the part that a Range header selects of a representation of that size,
// as RFC 9110, section 14, specifies. ok reports whether the response is that part; without
// a range of bytes, for several ranges and for a malformed header it is the whole. The error
// is that of a range after the end.
func ParseRange(values []string, size int) (part Range, ok bool, err *Error) {
	if len(values) != 1 || size == 0 {
		return Range{}, false, nil
	}
	unit, set, found := strings.Cut(values[0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return Range{}, false, nil
	}
	from, to, found := strings.Cut(strings.TrimSpace(set), "-")
	if !found {
		return Range{}, false, nil
	}
	first, isFirst := parsePosition(from, size)
	last, isLast := parsePosition(to, size)
	switch {
	case !isFirst && from != "", !isLast && to != "", !isFirst && !isLast, isFirst && isLast && last < first:
		return Range{}, false, nil // malformed
	case !isFirst: // the last bytes
		first, last = size-last, size-1
	case !isLast:
		last = size - 1
	}
	if first >= size {
		return Range{}, false, Errorf(CodeRange, "Range %.50q: the document has %d bytes", values[0], size)
	}
	return Range{First: first, Length: min(last, size-1) - first + 1}, true, nil
}

// parsePosition parses a position, or the length of a suffix. A larger one than size is
// size.
func parsePosition(text string, size int) (n int, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > size { // beyond any size
		n = size
	}
	return n, true
}

// WriteRange writes the response to a range after the end of a representation of that size.
func (e *Error) WriteRange(w http.ResponseWriter, size int) {
	w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
	e.Write(w)
}
