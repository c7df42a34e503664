// Package units formats numbers of bytes and things, and durations, for people, and parses
// numbers of bytes.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a flag for a number of bytes: "64MiB", "64MB", "1.5G", "4096". Units with an i,
// and single letters (K, M, G, T), are powers of 1,024; units with only a B are powers of
// 1,000.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"TIB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40},
	{"B", 1}, {"", 1},
}

// Set parses a size; it implements pflag.Value.
func (s *Size) Set(text string) error {
	upper := strings.ToUpper(strings.TrimSpace(text))
	for _, unit := range sizeUnits {
		number, found := strings.CutSuffix(upper, unit.suffix)
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		bytes := value * unit.bytes
		if err != nil || !(bytes >= 0 && bytes < math.MaxInt64) {
			break
		}
		*s = Size(bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size such as 64MiB, 64MB or 4096", text)
}

// Type is the name of the type in help texts; it implements pflag.Value.
func (s *Size) Type() string { return "size" }

// String formats the size exactly, if possible in the largest unit with a number of at least 1.
func (s *Size) String() string {
	text := strings.Replace(FormatBytes(int64(*s)), " ", "", 1)
	if exact := new(Size); exact.Set(text) != nil || *exact != *s {
		return strconv.FormatInt(int64(*s), 10)
	}
	return text
}

// FormatBytes formats a number of bytes: "1.5 GiB".
func FormatBytes(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + " " + units[unit:unit+1] + "iB"
}

// FormatCount formats a number with commas between thousands.
func FormatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// FormatCountOf formats a number with a noun in singular or plural.
func FormatCountOf(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return FormatCount(n) + " " + several
}
