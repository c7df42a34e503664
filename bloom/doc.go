// Package bloom makes the filters that spare a store most of its look-ups: a
// filter of a table says "no" when a key is surely not in the table, or "maybe".
//
// # Use
//
// A table's filter is built while its keys stream out in ascending order, and
// lies in the table's file:
//
//	builder := bloom.NewBuilder(nil)
//	for ... {
//		builder.Add(key)
//	}
//	section = builder.Finish(section)
//
// Later it is opened, and given to the store's Manager, which decides what of
// it is in memory:
//
//	manager := bloom.NewManager(budget)
//	err := manager.Restore(name, scores) // of the last time, if there are any
//	filter, err := bloom.Open(path, io.NewSectionReader(file, offset, size))
//	manager.Track(newest, older, oldest)
//	stop := manager.Start(report)
//
// and told of whenever tables come and go:
//
//	err = manager.Update(newest, merged)
//
// A look-up hashes its key once and asks the filter of one table after another.
// It reports a table that was searched in vain:
//
//	h := bloom.HashKey(key)
//	if probe := filter.Probe(key); probe.MayContain(h) {
//		if ... { // the table does not have it
//			probe.Missed()
//		}
//	}
//
// # Pages
//
// A filter is a sequence of pages. Each page covers a range of the table's keys,
// and all bits of a key lie in one page. So a page answers by itself, needs one
// stretch of memory, and is worth keeping or not whatever becomes of the others.
//
// Each page is a filter of github.com/bits-and-blooms/bloom/v3: the same bits
// are set for the same keys. We set and probe them with code of our own, which took
// 18 % off the processor time of writing; builds that check invariants make every
// page by way of the library, too, and compare. All pages of a filter have the same
// number of hash functions and, but for the last, the same number of bits, a power of two;
// the last one is folded in half for as long as its keys allow.
//
// A page that is not in memory answers "maybe". No look-up ever loads one.
//
// # Usefulness
//
// A Manager keeps the indexes of its filters in memory and, of their pages, as
// many as its budget has room for: those with the highest
//
//	usefulness = requests in the last t seconds x probability of the answer "no"
//
// for each byte. "No" is the only answer that spares anything: the filter of the
// oldest table, which has the key if no other had it, is worth nothing for keys
// that exist, and much for those that do not. Which are asked for, the Manager
// learns page by page: from what the pages in memory answer, and from what
// Missed reports of the others, so that a "maybe" for lack of the page tells
// neither for it nor against it. t is a minute, over which requests fade.
//
// A few requests are no measure of a page, and so each number is drawn towards
// the average of its table as far as chance explains the difference. Where keys
// are hashed, all pages of a table score alike and tables are ranked; where some
// ranges of keys are hot, pages are.
//
// What is worth nothing is not asked either: to look at bits is to wait for memory. A
// filter that has said "maybe" a thousand times in turn is presumed to do so, and asked
// again after the first Missed. So presuming costs at most one search in vain in a
// thousand look-ups. It goes by stripes of goroutines (internal/stripe).
//
// A pass a second takes a page in if it is better, by a margin that keeps pages
// from coming and going, than those that leave for it. It reads a few megabytes at
// most.
//
// The filter of a merged table inherits, for each of its pages, what is known of
// the pages with the same range of keys that it replaces, and has the best of its pages
// in memory when Update returns. That of a new table is expected to be
// asked as often as the newest was so far. Scores and Restore carry the
// knowledge from one run of the store to the next.
//
// A page is checked against its CRC when it is loaded. One that is damaged is
// reported, stays out, and answers "maybe".
//
// # Concurrency
//
// HashKey, the methods of Probe, Filter.MayContain and both Stats may be called by many
// goroutines, also while the Manager loads and drops pages; they take no lock and
// allocate nothing. A Manager is for many goroutines, too; its methods wait for
// one another, but Update, Track, SetBudget and Scores for no more than the page
// that is being read. A Builder is for one goroutine.
//
// # Layout
//
// Numbers are little-endian; docs/format/filter.md has all of it, byte for byte.
//
//	+------+------+-----+-----------+-------+---------+
//	| page | page | ... | last page | index | trailer |
//	+------+------+-----+-----------+-------+---------+
//
//	index entry of a page, 24 bytes and the separator
//	+--------+-------+------+-----+------------------+-----------+
//	| offset | bytes | keys | crc | separator length | separator |
//	|   8    |   4   |  4   |  4  |        4         |           |
//	+--------+-------+------+-----+------------------+-----------+
//
// A page covers the keys from its separator up to the separator of the next.
// The trailer holds the parameters and the CRC of the index, and ends in the
// version and the magic.
//
// # Recovery
//
// Nothing of a filter changes once it is written. Open verifies trailer and
// index and fails with a *CorruptionError; a table whose filter does not open
// can be read without. Whatever bytes of a filter are wrong, it never answers
// "no" for a key that was added. Scores that do not decode are done without.
//
// # Limits
//
// A page has from 8 bytes to MaxPageBytes, a key at most MaxKeyBytes, a filter
// at most 2^32-1 pages. The rate of false positives lies between
// MinFalsePositiveRate and MaxFalsePositiveRate.
package bloom
