// Package offheap is memory that the garbage collector does not know of.
//
// What the heap holds the collector lets grow to twice as much before it looks, and
// gives back to the system when it sees fit. A Region is mapped for itself: it takes
// what has been touched of it, and goes when it is released. On Linux a large one has
// huge pages, so that the processor finds what lies anywhere in it without walking
// page tables.
//
// Elsewhere a Region is a slice of the heap.
package offheap
