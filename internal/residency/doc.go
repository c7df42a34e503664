// Package residency keeps reads of mapped files fast that are larger than the memory.
//
// An access to a mapped page that is not in memory is a page fault, which waits for the
// disk: a batch of documents would read its pages one after the other. Ranges asks the
// kernel for many pages with one system call, so that the disk reads them concurrently.
// That is a waste if they are in memory, and asking for each page whether it is takes
// longer than reading it. So Gauge measures groups of reads, and only the groups after one
// that waited for the disk ask ahead.
//
// A page fault blocks its processor for other goroutines. If several read from the disk, each
// asks for its pages ahead, even for one, and lets the others run (Group.Yield) before it
// accesses them.
//
// Share samples which part of the mapped files is in memory.
//
// On other systems than Linux, no group counts as cold, and Share is unknown.
package residency
