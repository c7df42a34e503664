// Package offheap allocates memory outside the garbage-collected heap.
//
// The collector lets the heap grow to twice its live size and returns memory to the
// system late. A Region is a separate mapping: it takes the memory that was touched,
// and Release returns it at once. On Linux large regions use huge pages, which reduces
// TLB misses.
//
// On other systems a Region is a slice of the heap.
package offheap
