package main

// The texts of the page, written by hand: reasons cannot be computed.

const preface = `
docstore and rivals, measured in interleaved rounds on one machine, each contestant in separate processes; the results of reads are
verified. Figures are medians. * marks rounds that differ by more than 25 % or a machine busy with other work. Compare figures within a
table only: the machine is virtual.`

const goalsIntro = `
Goals were set before the implementation. A ratio (x) divides our median by that of the rival or the value after the comma;
":2" means two readers. The goal is in parentheses.`

const lossesReasons = `
Reasons:

- **bbolt scans** return entries in place; docstore merges its tables and copies each entry.
- **fillsync** measures the disk.
- **Responses of 16 KB and more**: checksums, and copies between the connection's batches.
- **Batches**: memcached and Redis copy one value from one place; docstore looks up the id, reads the block, and verifies a checksum.
- **Little memory**: memcached alone is refilled without reading a disk.`

// Reasons of missed goals.
const (
	writesReason      = "CPU time of merges, 0.6 us per write; the writer also waits for flushes and syncs"
	hitsReason        = "cache misses: a hit reads 17 cache lines of a block, 220 to 310 ns"
	missesReason      = "the filters, 10 MB, exceed the processor's cache; with 4,000,000 entries the ratio is 21"
	diskReason        = "0.67 disk pages per hit; 0.65 is the minimum with this memory"
	firstReadReason   = "the first read of a block verifies its checksum"
	memtableReason    = "a flush that starts a large merge first writes a table of its memtable"
	threadsReason     = "client and server share two processors; a third of the time is thread switches, half is the kernel ([details](boxcar-speed.md))"
	largeReason       = "processor time for the large responses; a separate connection does not help"
	lookupReason      = "half of the server's time is cache misses of the lookup and the fetch"
	gatherReason      = "rueidis gathers commands for 50 us"
	rivalMemoryReason = "the rival reads no disk"
	atomicsReason     = "cores of this machine exchange cache lines slowly; on an AMD EPYC 127 ns"
	idleReason        = "on an AMD EPYC 8,059 B and 0.57 %"
	contentionReason  = "locks that the two cores exchange; on an AMD EPYC 3.12x, 1.64x and 3.41x"
	notMeasured       = "not measured"
	unknown           = "unknown"
)

// reasonOrder is the order of the reasons on the page.
var reasonOrder = []string{
	writesReason, hitsReason, missesReason, diskReason, firstReadReason, memtableReason, threadsReason, largeReason, lookupReason,
	gatherReason, rivalMemoryReason, atomicsReason, idleReason, contentionReason, notMeasured, unknown,
}

// reasons explain missed goals, by area and text.
var reasons = map[string]string{
	"Index: writes, best Go LSM":                    writesReason,
	"Index: writes, best of all":                    writesReason,
	"Index: hits, best Go LSM":                      hitsReason,
	"Index: hits, best of all":                      hitsReason,
	"Index: hits:2, best Go LSM":                    hitsReason,
	"Index: hits:2, best of all":                    hitsReason,
	"Index: hits, original in Java":                 hitsReason,
	"Index: misses, best Go LSM":                    missesReason,
	"Index: writes, best Go LSM, in 512 MB":         writesReason,
	"Index: hits, best Go LSM, in 512 MB":           diskReason,
	"Index: p99.9 of Get, its p50":                  firstReadReason,
	"Index: bytes written, article's rule":          memtableReason,
	"Boxcar: 64 callers, echo":                      threadsReason,
	"Boxcar: 64 callers, grpc-go":                   threadsReason,
	"Boxcar: 64 callers, drpc":                      threadsReason,
	"Boxcar: TLS, grpc-go":                          threadsReason,
	"Boxcar: p99 next to 16 MiB responses, without": largeReason,
	"Documents: 64 callers, memcached":              lookupReason,
	"Documents: 64 callers, rueidis":                gatherReason,
	"Documents: codec none, memcached":              lookupReason,
	"Documents: codec none, rueidis":                gatherReason,
	"Boxcar: acquire and release, ns":               atomicsReason,
	"Boxcar: idle client":                           idleReason,
	"Boxcar: idle clients, processor":               idleReason,
	"Documents: 64 callers, go-redis":               contentionReason,
	"Documents: 64 callers, rueidis default":        contentionReason,
	"Documents: codec none, go-redis":               contentionReason,
	"Documents: codec none, rueidis default":        lookupReason,
	"Documents: little memory, memcached":           rivalMemoryReason,
}
