// Package maintain checks, compacts, truncates and repairs the queue in a directory, and
// accounts for its bytes.
//
//	[Check]     verifies every byte, finds all damage and changes nothing
//	[Measure]   counts the live and the dead documents of each segment
//	[Compact]   rewrites segments with many dead documents, or with ones to be erased
//	[Truncate]  takes back the newest entries
//	[Repair]    keeps what can be verified of damaged files
//
// Compact, Truncate and Repair write rewrites, 0000000003-0000000005.0001.seg for the first
// rewrite of segments 3 to 5, in which kept entries keep their addresses. A rewrite gets its
// name when it is durable, and what it replaces is removed or renamed afterwards, so a crash
// leaves either the files from before or whole rewrites next to them; the next run removes
// incomplete ones.
//
// Check and Measure need no lock. Compact may run while a Writer appends; Truncate and Repair
// exclude it. Of these three one runs at a time in a directory.
//
// The package decides which entries stay. It must not know the layout of files, which package
// segment has, except to recover entries from damaged bytes (salvage).
package maintain
