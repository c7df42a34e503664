package simulate

import "slices"

// shorten returns the configuration with as few faults as still fail: it drops halves, then
// quarters, and so on to single faults.
func shorten(c Config, fails func(Config) bool) Config {
	for part := len(c.Faults) / 2; part >= 1; {
		dropped := false
		for from := 0; from < len(c.Faults); {
			shorter := c
			shorter.Faults = slices.Delete(slices.Clone(c.Faults), from, min(from+part, len(c.Faults)))
			if fails(shorter) {
				c, dropped = shorter, true
			} else {
				from += part
			}
		}
		if !dropped || part > 1 {
			part /= 2
		}
	}
	return c
}
