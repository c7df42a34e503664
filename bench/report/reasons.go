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
median of ours by that of the best rival in the same run. Goals were set at the article's 10,000,000 entries; the quick size has fewer.`

const lossesIntro = `
Each phase in which the best rival was ahead of ours, whatever the goal.`

// lossesReasons explains what the list above shows again and again.
const lossesReasons = `
What stands behind them:

- **Batches of documents**: memcached and Redis copy a value from one place in memory; docstore looks each id up in the index, finds
  its block and checks the document's id and checksum, and the client decompresses it. One at a time that is hidden behind the cost of a
  call, in batches it is not.
- **One caller**: a lone call waits for the wake-up of two processes, which no protocol shortens.
- **B-trees under mmap** (LMDB, bbolt) read in order from pages that are the iterator's; they write so much slower that the two
  should be read together.
- **Synced writes** (fillsync) take what the disk takes.
- **Open**: a store that has to read its log and its tables' filters takes longer than one file that is mapped.`

// reasons tell why a goal is missed, by issue and text.
var reasons = map[string]string{}

// skipped tells why a section may have no results, by its first table.
var skipped = map[string]string{
	"limited": "It takes a control group that bounds memory: root, and a writable /sys/fs/cgroup of version 1 or 2.",
	"scarce":  "It takes a control group that bounds memory (root, and a writable /sys/fs/cgroup), and memcached, which bench/setup installs.",
	"debian":  "It takes the file of records; see -corpus of bench/report.",
}
