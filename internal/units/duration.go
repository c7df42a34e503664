package units

import (
	"fmt"
	"strconv"
	"time"
)

// FormatDuration formats a duration with at most two units: "3 h 12 min".
func FormatDuration(d time.Duration) string {
	switch d = max(0, d); {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return FormatSeconds(d.Seconds())
}

// FormatSeconds formats seconds in a suitable unit.
func FormatSeconds(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 1e-3:
		return strconv.FormatFloat(s*1e6, 'f', 0, 64) + " µs"
	case s < 1:
		return strconv.FormatFloat(s*1e3, 'f', 1, 64) + " ms"
	case s < 60:
		return strconv.FormatFloat(s, 'f', 1, 64) + " s"
	}
	return FormatDuration(time.Duration(s * float64(time.Second)))
}
