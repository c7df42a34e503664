package publish

import (
	"math"
	"slices"
)

// InUse reports whether a manifest is announced, validated, pinned, retained, or served by a
// canary: gc keeps it.
func (r Record) InUse(number uint64) bool {
	return slices.ContainsFunc(r.keptBefore(math.MaxUint64), func(ref Ref) bool { return ref.Number == number })
}
