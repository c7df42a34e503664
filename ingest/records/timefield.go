package records

import (
	"math"
	"strconv"
	"time"
)

// TimeField finds the time of an event in documents: text of RFC 3339, or a number of Unix seconds
// or milliseconds.
type TimeField struct{ path []string }

// maxUnixSeconds is the largest number of seconds, of the year 5138; larger ones are milliseconds,
// which begin in 1973.
const maxUnixSeconds = 1e11

// ParseTimeField returns the TimeField of a field, nested with dots.
func ParseTimeField(path string) (*TimeField, error) {
	names, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	return &TimeField{names}, nil
}

// Of returns the time in a document; zero: the document is not a JSON object, or has no time there.
func (f *TimeField) Of(document []byte) time.Time {
	if !Valid(document) {
		return time.Time{}
	}
	value, err := find(document, f.path)
	if err != nil {
		return time.Time{}
	}
	if value[0] == '"' {
		text, _ := parseString(value)
		t, _ := time.Parse(time.RFC3339, string(text)) // zero if it is another text
		return t
	}
	number, err := strconv.ParseFloat(string(value), 64)
	if err != nil || number <= 0 || number > maxUnixSeconds*1000 {
		return time.Time{}
	}
	if number > maxUnixSeconds {
		number /= 1000
	}
	seconds, fraction := math.Modf(number)
	return time.Unix(int64(seconds), int64(fraction*float64(time.Second)))
}
