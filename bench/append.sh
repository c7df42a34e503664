#!/bin/sh
# How fast docstore-updater appends, beside what the disk takes. Prints the rates
# of dd conv=fdatasync and of docstore-updater append, one after the other, three
# times, in MB of input a second.
#
#   bench/append.sh RECORDS.ndjson.gz [DIR]     DIR lies on the disk to measure
set -eu
records=$1
work=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/append.XXXXXX")
trap 'rm -rf "$work"' EXIT
copies=6 # so that several segments are written

cd "$(dirname "$0")/.."
go build -o "$work/docstore-updater" ./cmd/docstore-updater
for _ in $(seq $copies); do
	gzip -dc "$records"
done >"$work/input"
size=$(stat -c %s "$work/input")
cat "$work/input" >/dev/null # read from memory from here on

# rate NAME COMMAND...: runs it and prints MB of input a second
rate() {
	name=$1
	shift
	sync
	start=$(date +%s%N)
	"$@"
	end=$(date +%s%N)
	awk -v name="$name" -v bytes="$size" -v ns=$((end - start)) \
		'BEGIN { printf "%-24s %7.0f MB/s\n", name, bytes * 1000 / ns }'
}

disk() { dd if="$work/input" of="$work/copy" bs=1M conv=fdatasync 2>/dev/null && rm "$work/copy"; }
append() { "$work/docstore-updater" append --quiet --codec "$1" --queue "$work/queue-$1" "$work/input" && rm -r "$work/queue-$1"; }

for _ in 1 2 3; do
	rate "dd" disk
	for codec in none s2 zstd; do
		rate "append --codec $codec" append $codec
	done
done
