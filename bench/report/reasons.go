package main

// What follows is kept by hand: the report computes what was reached and lost, not why.

const preface = `
What docstore does beside what one would use instead, each figure measured by one command on one machine. It is written by
'make bench-report' from stored results, so the tables, the marks and the list of what is lost follow from what was measured.`

const reading = `
Contestants take turns in rounds, each in processes of its own; medians of the rounds, and behind ± half of what lies between the
least and the greatest. A star marks figures beside which other processes took more than a tenth of the processors. Rates of
different runs are not to be compared on a virtual machine: ratios within one are. Whoever measures checks what he got: entries and
documents are compared with what they should be, all after the clock has stopped or a share while it runs.`

const goalsIntro = `
As the issues set them before there was code: B the index, C the queue, D and G Boxcar and its policies, I the main job. A ratio is the
median of ours by that of the best rival in the same run. Goals were set at the article's 10,000,000 entries, which only the full size
has; below each table stands which size it is of.`

const lossesIntro = `
Each phase in which the best rival was ahead of ours, whatever the goal.`

// lossesReasons explains what the list above shows again and again.
const lossesReasons = `
What stands behind them:

- **Batches of documents**: memcached and Redis copy a value from one place in memory. docstore looks each id up in the index, goes to
  its block's table and from there to the document, compares the id and verifies a checksum, and the client decompresses. What is
  asked for together waits for memory together, so that batches are about as fast; the goals above have the figures.
- **One caller**: a lone call is the wake-up of two processes, whatever the protocol. go-redis and gomemcache write and read in
  the caller's goroutine on a connection of its own and so does a lone caller of Boxcar, whose frames, deadlines and slots come on top.
- **B-trees under mmap** (LMDB, bbolt) scan pages where the entries lie in order, and hand out what lies there; docstore merges its tables and
  memtable and copies each entry. They pay when they write: read both columns.
- **Synced writes** (fillsync) are few here, a thousandth of the entries, and take what the disk takes.
- **Open**: docstore replays its log into a memtable, LMDB and bbolt map one file.
- **Small data** favour the rivals: with a store that fits the processor's caches nobody waits for memory (see As the data grow).`

const (
	writesReason = `with 4,000,000 entries a write takes 0.6 us of processor time, of which most is sorting, hashing, encoding and checksumming what merges write
  again, 2.5 times in all as the article's rule has it. But the two processors are 59 % busy while entries are written, as the writer waits for flushes and their syncs, and a
  third of the time is the last merge, on one of them: docs/lsm.md. The probe that the goal was taken from had no checksums, deletes, versions or manifest.`
	hitsReason = `a hit waits for memory: with 4,000,000 entries the 17 lines that it needs of a block take 220 to 310 ns here, of 440 to 510. Nine times
  Pebble's rate would be as long as that alone; the more entries, the longer each wait. MultiGet overlaps the waits; docs/lsm.md has the account, and what was tried in vain.`
	missesReason = `a miss waits for a line of each table's filter. With 10,000,000 entries the filters are 10 MB, which the processor's caches do not keep from one look-up to the
  next; with 1,000,000 it is 15x, with 4,000,000 it was 21x.`
	limitedReason = `a hit reads 0.67 pages from the disk, where 0.65 is the floor, the part of the blocks that memory has no room for (docs/lsm.md). What the kernel takes for
  reading them is the same for all.`
	limitedWritesReason = `as without the bound, and what merges read has left memory by then: 160 bytes a write come from the disk, for Pebble too.`
	tailReason          = `the slowest in a thousand are the first look-ups in a block, which verify its checksum, and those beside the kernel's own work. On a processor of its own it is
  4.0x: docs/lsm.md.`
	scanReason = `an iterator hands out copies, as no slice of a mapping may leave the package: a file that is cut must be an error, not a crash.`
	manyReason = `a third of the processor time of either process goes into threads that wake each other, sleep and wait, and a half is the kernel's: the two
  processes have two processors between them, and each runs out of work every 50 us. With one processor for each process the rate is a tenth higher.
  docs/boxcar-speed.md has the account, what was done and what was tried in vain.`
	tlsReason = `encryption and decryption of 1 KB take 0.16 us each and 0.4 us of processor time with the copies; all else is as of 64 callers in plain text, which do not
  make ten times the calls of grpc-go over TLS either.`
	idleReason = `in the quick size 2,000 clients still ask for better slots, and 20 s of starting up are spread over fewer of them. With 10,000 that have come to rest it
  is 7,888 bytes in plain text and 20,761 over TLS (rpcbench -workloads idle -settle 8s -quiet 3s -clients 10000).`
	batchReason = `processor time of a document in a batch of 50, 64 callers, Debian's records, one run on a busy machine: docstore 1.18 us of the
  server's and 1.67 of the client's, with codec none 1.09 and 1.06, memcached 1.29 and 1.77, go-redis 1.21 and 1.22, rueidis 1.29 and 1.26. Of our server's 40 % is fetching
  documents, whose waits for memory are overlapped, 18 % looking up addresses, 16 % system calls; of the client's 40 % is decoding s2 and 3 % parsing protobuf. A
  binary frame could save those 3 %, so there is none.`
	singleReason = `with 64 callers a document of Debian's took 3.8 us of the server's processor time and 4.2 of the client's, with codec none 3.6 and 3.3, memcached 8.5 and 10.1,
  go-redis 7.5 and 11.1, rueidis 3.4 and 6.2, one run on a busy machine. Half of our server's was looking the id up and fetching the document, nearly all of it waiting for
  memory, one line after the other. What gets that arrive together need is fetched ahead since, which takes a tenth of the server's time away: each is still a frame, a deadline,
  two timings and an answer of its own. Batches take 1.2 us.
  Redis keeps a value at one place. Protobuf is 1 to 3 % on either side, so there is no binary frame.`
	gatherReason = `rueidis gathers commands for up to 50 us before it writes them (MaxFlushDelay), which halves the processor time of both sides: with 64 callers 3.8 us a
  document; as it comes 8.2, docstore 5.3, codec none 4.8, in one run of made documents on a busy machine. Its rate doubled; the goal was taken from rueidis as it comes, which
  has a row of its own. Where docstore's time goes: ` + singleReason
	boundReason = `this rival is a bound that no user can reach: what memcached has lost is put in again from the bench's own memory, and nobody reads a disk. docstore does:
  17 us of processor time a document instead of 4, the kernel's for faults, for reading and for making room in the group. Eight threads of Go instead of two, so that as many
  faults are under way, changed the rate by -2 to +20 %. The next row has memcached before a store on disk.`
	beforeDiskReason = `what one would run: on a miss the document comes from Pebble, behind grpc-go, and goes into memcached, both within the memory that the daemon has alone.`
)

// reasons tell why a goal is missed, by issue and text.
var reasons = map[string]string{
	"B: random writes, to the best LSM in Go":                       writesReason,
	"B: random writes, to the best of all":                          writesReason,
	"B: hits, one reader, to the best LSM in Go":                    hitsReason,
	"B: hits, one reader, to the best of all":                       hitsReason,
	"B: hits, two readers, to the best LSM in Go":                   hitsReason,
	"B: hits, two readers, to the best of all":                      hitsReason,
	"B: hits of 10,000,000, to the original in Java":                hitsReason,
	"B: misses, to the best LSM in Go":                              missesReason,
	"B: misses, to the best of all":                                 missesReason,
	"B: random writes, to the best LSM in Go, in 512 MB":            limitedWritesReason,
	"B: hits, to the best LSM in Go, in 512 MB":                     limitedReason,
	"B: p99.9 of Get by its p50":                                    tailReason,
	"B: scan forward, to the best LSM in Go":                        scanReason,
	"B: scan backward, to Pebble":                                   scanReason,
	"D: 64 callers, to the echo over 64 connections":                manyReason,
	"D: 64 callers, to grpc-go with its best number of connections": manyReason,
	"D: 64 callers, to drpc with its pool":                          manyReason,
	"D: 64 callers, a connection for each slot, to the echo": `every request is a write and every answer a read, as of the echo, and takes the kernel as long: what is left are checksum, ladder, frames and
  clocks, 0.9 us of processor time on each side, 1.8 of 13.8.`,
	"D: 64 callers over TLS, to grpc-go over TLS":               tlsReason,
	"D: open loop at half of grpc-go's limit: p99 by grpc-go's": `client, server and the bench's own timers share two processors: what is late is a request that found both of them busy.`,
	"D: a slot taken and given back by 64 goroutines, ns":       `one lock: how soon one processor sees what the other has written decides, which on a virtual machine differs from hour to hour.`,
	"D: an idle client in plain text, on the server":            idleReason,
	"D: an idle client over TLS, on the server":                 idleReason,
	"B: bytes written to tables by what the article's rule gives": `a flush that begins a merge of more than four memtables is written to a table of its own first, so that
  it does not hold up writers; the rule counts it as part of the merge.`,
	"D: p99 while a lane moves 16 MiB answers by that without":                            `what remains is the processors' work for the large answers: on a connection of its own ("apart") the neighbour costs about as much.`,
	"I: a tenth of the documents in memory, zipfian, to memcached refilled from memory":   boundReason,
	"I: a tenth of the documents in memory, zipfian, to memcached before a store on disk": beforeDiskReason,
	"I: batches of 50, to memcached":                                                      batchReason,
	"I: batches of 50, codec none, to Redis' MGET":                                        batchReason,
	"I: 64 callers one at a time, to memcached with gomemcache":                           singleReason,
	"I: 64 callers one at a time, to Redis with go-redis":                                 singleReason,
	"I: 64 callers one at a time, to Redis with rueidis":                                  gatherReason,
	"I: 64 callers one at a time, to Redis with rueidis as it comes":                      singleReason,
	"I: 64 callers, codec none, to memcached":                                             singleReason,
	"I: 64 callers, codec none, to Redis with go-redis":                                   singleReason,
	"I: 64 callers, codec none, to Redis with rueidis":                                    gatherReason,
	"I: 64 callers, codec none, to Redis with rueidis as it comes":                        singleReason,
}

// skipped tells why a section may have no results, by its first table.
var skipped = map[string]string{
	"limited": "It takes a control group that bounds memory: root, and a writable /sys/fs/cgroup of version 1 or 2.",
	"scarce":  "It takes a control group that bounds memory (root, and a writable /sys/fs/cgroup), and memcached, which bench/setup installs.",
	"debian":  "It takes the file of records; see -corpus of bench/report.",
}
