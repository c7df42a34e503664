package main

import (
	"fmt"
	"math"
)

// formats are the formats of figures in the templates.
var formats = map[string]func(float64) string{
	"": digits, "number": number, "count": count, "whole": whole, "ns": duration,
	"x":    func(f float64) string { return digits(f) + "x" },
	"B":    func(f float64) string { return number(f) + "B" },
	"MB":   func(f float64) string { return digits(f/1e6) + "MB" },
	"%":    func(f float64) string { return digits(100*f) + "%" },
	"s":    func(f float64) string { return duration(f * 1e9) },
	"each": func(f float64) string { return digits(1e9 / f) }, // nanoseconds of one, from the rate
}

// number formats a figure with three digits.
func number(f float64) string {
	switch size := math.Abs(f); {
	case size >= 1e6:
		return digits(f/1e6) + "M"
	case size >= 1e4:
		return digits(f/1e3) + "k"
	case size >= 1000:
		return fmt.Sprintf("%.0f", f)
	}
	return digits(f)
}

func digits(f float64) string {
	switch size := math.Abs(f); {
	case size >= 99.95 || size == 0:
		return fmt.Sprintf("%.0f", f)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// duration formats nanoseconds.
func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return digits(ns/1e9) + "s"
	case ns >= 1e6:
		return digits(ns/1e6) + "ms"
	case ns >= 1e3:
		return digits(ns/1e3) + "us"
	}
	return fmt.Sprintf("%.0fns", ns)
}

// count formats a whole number.
func count(f float64) string {
	if f >= 1e4 {
		return number(f)
	}
	return fmt.Sprintf("%.0f", f)
}

// whole formats a number with three significant digits and commas between thousands.
func whole(f float64) string {
	unit := 1.0
	for f/unit >= 1000 {
		unit *= 10
	}
	n := fmt.Sprintf("%.0f", float64(int(f/unit+0.5))*unit)
	for i := len(n) - 3; i > 0; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}
