// Package prefetch has the processor fetch memory that will be read soon.
//
// A load makes the processor wait: it can go on with no more than the few hundred
// instructions behind it. A prefetch does not, and so the memory for many look-ups
// comes side by side. It is a hint: it reads nothing and cannot fault, and where
// there is no such instruction it does nothing.
package prefetch

// LineBytes is what is fetched at once. Where a cache line is of another size, too
// much or too little is fetched, and all works as well.
const LineBytes = 64
