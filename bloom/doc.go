// Package bloom provides paged Bloom filters that avoid most table lookups of a store:
// the filter of a table answers "no" if the table does not have a key, or "maybe".
//
// # Use
//
// The filter of a table is built while the table's keys are written in ascending order,
// and is stored in the table's file:
//
//	builder := bloom.NewBuilder(nil)
//	for ... {
//		builder.Add(key)
//	}
//	section = builder.Finish(section)
//
// Later it is opened and passed to the store's Manager, which decides which of its
// pages are in memory:
//
//	manager := bloom.NewManager(budget)
//	err := manager.Restore(name, scores) // of the previous run, if any
//	filter, err := bloom.Open(path, io.NewSectionReader(file, offset, size))
//	manager.Track(newest, older, oldest)
//	stop := manager.Start(report)
//
// The store reports each change of its tables:
//
//	err = manager.Update(newest, merged)
//
// A lookup hashes its key once and probes the filters of the tables in order. It
// reports false positives:
//
//	h := bloom.HashKey(key)
//	if probe := filter.Probe(key); probe.MayContain(h) {
//		if ... { // the table does not have it
//			probe.Missed(key)
//		}
//	}
//
// # Pages
//
// A filter is a sequence of pages. Each page covers a range of the table's keys, and
// all bits of a key are in one page. So each page can be loaded, dropped and probed
// independently of the others.
//
// Each page is a filter of github.com/bits-and-blooms/bloom/v3: the same bits are set
// for the same keys. This package sets and probes the bits with faster code; invariant
// builds also build every page with the library and compare. All pages of a filter have
// the same number of hash functions and, except for the last, the same number of bits, a
// power of two. The last page is folded in half as often as its keys allow.
//
// A page that is not in memory answers "maybe". A lookup never loads a page.
//
// # Usefulness
//
// A Manager keeps the indexes of its filters in memory and as many pages as fit into
// its budget: those with the highest
//
//	usefulness = requests in the last t seconds x probability of the answer "no"
//
// per byte. Only the answer "no" saves work: the filter of the oldest table, which has
// every key that no newer table has, is useless for keys that exist and useful for keys
// that do not. The Manager estimates the probability for each page: from the answers of
// resident pages, and from Missed for the others. Whether a page is in memory does not
// change its estimate. t is a minute, the time constant of an exponential decay.
//
// The estimate of a page with few requests is noisy, so it is shrunk towards the average
// of its table, by the part of the variance that chance explains (James-Stein). With
// hashed keys all pages of a table score alike and tables are ranked; with hot key ranges,
// pages are ranked.
//
// A useless filter is bypassed, because reading its bits is a cache miss: after 1,024
// consecutive correct "maybe" answers Probe.MayContain returns true without reading the
// filter, until the next call of Missed. So bypassing costs at most one unnecessary search
// per 1,024 lookups. Each stripe of goroutines (internal/stripe) counts its own answers.
//
// Once per second a pass loads pages. A page replaces others only if it is better by a
// margin, which avoids thrashing. A pass reads at most 4 MiB.
//
// The filter of a merged table inherits, for each page, the statistics of the replaced
// pages with the same key range, and its best pages are in memory when Update returns.
// A new table is expected to get as many requests as the previous newest one. Scores and
// Restore carry the statistics across restarts.
//
// Each page is checked against its CRC when it is loaded. A damaged page is reported, is
// not loaded and answers "maybe".
//
// # Concurrency
//
// HashKey, the methods of Probe, Filter.MayContain and both Stats are safe for concurrent
// use, also while the Manager loads and drops pages; they take no lock and do not
// allocate. A Manager is safe for concurrent use; its methods exclude each other, but
// Update, Track, SetBudget and Scores wait for at most one page read. A Builder is not
// safe for concurrent use.
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
// A page covers the keys from its separator up to the separator of the next page. The
// trailer holds the parameters and the CRC of the index, and ends with version and magic.
//
// # Recovery
//
// A filter is immutable. Open verifies trailer and index and returns a *CorruptionError
// if they are damaged; the table can be read without its filter. Whichever bytes are
// damaged, a filter never answers "no" for an added key. Scores that do not decode are
// ignored.
//
// # Limits
//
// A page has 8 to MaxPageBytes bytes, a key at most MaxKeyBytes, a filter at most 2^32-1
// pages. The false positive rate is between MinFalsePositiveRate and MaxFalsePositiveRate.
package bloom
