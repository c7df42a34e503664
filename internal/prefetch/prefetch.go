// Package prefetch prefetches memory into the processor's cache.
//
// A load that misses the cache stalls the processor after a few hundred more
// instructions. A prefetch does not stall, so the cache misses of many lookups overlap.
// It is a hint: it reads nothing and cannot fault. On processors without such an
// instruction it does nothing.
package prefetch

// LineBytes is the size of a prefetch. Another cache line size only makes prefetching
// less effective.
const LineBytes = 64
