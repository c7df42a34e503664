#!/bin/bash
# How fast docstore-updater check verifies, beside what reading the same files
# takes. Makes a queue of the records for each codec and prints, three times, the
# rates of dd over its files and of check, in MB of the files a second, first from
# the disk and then from memory, and the processor time that check has taken.
#
#   bench/check.sh RECORDS.ndjson.gz [DIR]     DIR lies on the disk to measure
#   COPIES=4 bench/check.sh ...                of the records, 12 by default
set -eu
records=$(realpath "$1")
work=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/check.XXXXXX")
trap 'rm -rf "$work"' EXIT
copies=${COPIES:-12} # so that several segments are written

cd "$(dirname "$0")/.."
go build -o "$work/docstore-updater" ./cmd/docstore-updater
for _ in $(seq "$copies"); do
	gzip -dc "$records"
done >"$work/input"

# forget drops a queue's files from memory, as far as the kernel does as it is told.
forget() {
	for file in "$1"/*.seg; do
		dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null
	done
}

# rate NAME BYTES COMMAND...: runs it and prints MB a second
rate() {
	name=$1
	bytes=$2
	shift 2
	start=$(date +%s%N)
	"$@" >/dev/null
	end=$(date +%s%N)
	awk -v name="$name" -v bytes="$bytes" -v ns=$((end - start)) \
		'BEGIN { printf "%-36s %7.0f MB/s\n", name, bytes * 1000 / ns }'
}

read_all() { for file in "$1"/*.seg; do dd if="$file" of=/dev/null bs=1M 2>/dev/null; done; }
check() { "$work/docstore-updater" check --quiet --queue "$1"; }

for codec in none s2 zstd; do
	queue="$work/queue-$codec"
	"$work/docstore-updater" append --quiet --codec "$codec" --queue "$queue" "$work/input"
	size=$(cat "$queue"/*.seg | wc -c)
	for _ in 1 2 3; do
		forget "$queue"
		rate "dd, $codec, from the disk" "$size" read_all "$queue"
		forget "$queue"
		rate "check, $codec, from the disk" "$size" check "$queue"
		rate "dd, $codec, from memory" "$size" read_all "$queue"
		rate "check, $codec, from memory" "$size" check "$queue"
		{ time -p check "$queue" >/dev/null; } 2>&1 | awk -v bytes="$size" -v codec="$codec" \
			'/user|sys/ { s += $2 } END { printf "%-36s %7.2f s for %.0f MB\n", "check, " codec ", processors", s, bytes / 1e6 }'
	done
done
