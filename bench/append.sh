#!/bin/bash
# How small and how fast docstore-updater appends. Prints what each codec's queue of
# the records takes on disk, as a share of the input; then the rates of dd
# conv=fdatasync and of docstore-updater append, in MB of input a second, by turns:
# each round, the medians, and their share of dd's.
#
#   bench/append.sh RECORDS.ndjson.gz [DIR]     DIR lies on the disk to measure
#   ROUNDS=3 bench/append.sh ...                5 by default
set -eu
records=$(realpath "$1")
work=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/append.XXXXXX")
trap 'rm -rf "$work"' EXIT
rounds=${ROUNDS:-5}
copies=6 # of the records, for the rates, so that several segments are written

cd "$(dirname "$0")/.."
go build -o "$work/docstore-updater" ./cmd/docstore-updater
gzip -dc "$records" >"$work/records"
for _ in $(seq $copies); do
	cat "$work/records"
done >"$work/input"

append() { "$work/docstore-updater" append --quiet --codec "$1" --queue "$work/queue" "$2"; }

for codec in none lzo s2 zstd; do
	append $codec "$work/records"
	cat "$work/queue"/*.seg | wc -c | awk -v codec=$codec -v input="$(stat -c %s "$work/records")" \
		'{ printf "stored / input, %-6s %5.3f\n", codec, $1 / input }'
	rm -r "$work/queue"
done

# measure NAME COMMAND...: runs it and notes MB of input a second
measure() {
	local name=$1 start end
	shift
	sync
	start=$(date +%s%N)
	"$@"
	end=$(date +%s%N)
	awk -v bytes="$(stat -c %s "$work/input")" -v ns=$((end - start)) 'BEGIN { printf "%.0f\n", bytes * 1000 / ns }' >>"$work/rates.$name"
}

disk() { dd if="$work/input" of="$work/copy" bs=1M conv=fdatasync 2>/dev/null; }

for _ in $(seq "$rounds"); do
	measure dd disk
	rm "$work/copy"
	for codec in none lzo s2 zstd; do
		measure $codec append $codec "$work/input"
		rm -r "$work/queue"
	done
done
for name in dd none lzo s2 zstd; do
	median=$(sort -n "$work/rates.$name" | awk '{ rate[NR] = $1 } END { print rate[int((NR + 1) / 2)] }')
	[ $name != dd ] || dd=$median
	printf '%-6s MB/s %s, median %d, %s of dd\n' $name "$(paste -sd' ' "$work/rates.$name")" "$median" \
		"$(awk -v a="$median" -v b="$dd" 'BEGIN { printf "%.2f", a / b }')"
done
