package main

import "slices"

// The texts of the page, written by hand: reasons cannot be computed.

const preface = `
docstore and rivals, measured in interleaved rounds on one machine, each contestant in separate processes; the results of reads are
verified. Figures are medians. * marks rounds that differ by more than 25 % or a machine busy with other work. Compare figures within a
table only: the machine is virtual.`

const goalsIntro = `
Goals were set before the implementation. A ratio (x) divides our median by that of the rival or the value after the comma;
":2" means two readers. Missed goals are in bold, with the number of the reason.`

const lossesReasons = `
Reasons:

- **bbolt scans** return entries in place; docstore merges its tables and copies each entry.
- **Responses of 64 KB**: checksums, and copies between the connection's batches.
- **Little memory**: memcached alone is refilled without reading a disk.`

// reasons explain missed goals, which are named by area and text, in the order of the page.
var reasons = []struct {
	text  string
	goals []string
}{
	{"CPU time of merges, 0.6 us per write; the writer also waits for flushes and syncs", []string{
		"Index: writes, best Go LSM", "Index: writes, best of all", "Index: writes, best Go LSM, in 512 MB",
	}},
	{"cache misses: a hit reads 17 cache lines of a block, 220 to 310 ns", []string{
		"Index: hits, best Go LSM", "Index: hits, best of all", "Index: hits:2, best Go LSM", "Index: hits:2, best of all",
		"Index: hits, original in Java",
	}},
	{"the filters, 10 MB, exceed the processor's cache; with 4,000,000 entries the ratio is 21", []string{
		"Index: misses, best Go LSM",
	}},
	{"a scan verifies a copy of each block", []string{
		"Index: scan, best Go LSM",
	}},
	{"0.67 disk pages per hit; 0.65 is the minimum with this memory", []string{
		"Index: hits, best Go LSM, in 512 MB", "Index: hits, best of all, in 512 MB",
	}},
	{"the number of tables at that moment decides; repetitions give 0.4 to 2.2", []string{
		"Index: YCSB E next to a writer, Pebble",
	}},
	{"the first read of a block verifies its checksum", []string{
		"Index: p99.9 of Get, its p50",
	}},
	{"a flush that starts a large merge first writes a table of its memtable", []string{
		"Index: bytes written, article's rule",
	}},
	{"client and server share two processors; a third of the time is thread switches, half is the kernel ([details](boxcar-speed.md))", []string{
		"Boxcar: 64 callers, echo", "Boxcar: 64 callers, grpc-go", "Boxcar: 64 callers, drpc", "Boxcar: TLS, grpc-go",
	}},
	{"the latency of waking a thread decides; repetitions differ by a factor of three", []string{
		"Boxcar: 1 caller, echo",
	}},
	{"checksums and copies of large responses", []string{
		"Boxcar: 1,024 callers, 10 KB, grpc-go",
	}},
	{"processor time for the large responses; alone the p99 is half of what it was when the goal was set", []string{
		"Boxcar: p99 next to 16 MiB responses, without",
	}},
	{"half of the server's time was cache misses of the lookup and the fetch; responses were not written in parts", []string{
		"Documents: 64 callers, memcached", "Documents: codec none, memcached", "Documents: codec none, rueidis default",
	}},
	{"rueidis gathers commands for 50 us; on Intel, responses were not written in parts", []string{
		"Documents: 64 callers, rueidis", "Documents: codec none, rueidis",
	}},
	{"the rival reads no disk", []string{
		"Documents: little memory, memcached",
	}},
	{"cores of these machines exchange cache lines slowly; on another AMD EPYC 127 ns", []string{
		"Boxcar: acquire and release, ns",
	}},
	{"measured before read buffers began with 256 bytes: AMD EPYC had 8,638 B", []string{
		"Boxcar: idle client",
	}},
	{"wake-ups for pings are expensive on these virtual machines; 0.57 % on another AMD EPYC", []string{
		"Boxcar: idle clients, processor",
	}},
	{"client and server took turns before the server wrote responses in parts", []string{
		"Documents: 64 callers, go-redis", "Documents: 64 callers, rueidis default", "Documents: codec none, go-redis",
	}},
}

const unknown = "unknown"

// reasonOf returns why a goal is missed.
func reasonOf(g goal) string {
	for _, r := range reasons {
		if slices.Contains(r.goals, g.area+": "+g.text) {
			return r.text
		}
	}
	return unknown
}
