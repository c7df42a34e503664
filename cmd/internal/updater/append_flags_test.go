package updater

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// wrongUse is a command line of append that is refused.
type wrongUse struct {
	flags string // separated by blanks
	want  string // part of the message
}

// wrongUses are those of each flag of append.
var wrongUses = map[string][]wrongUse{
	"announce": {
		{"--announce", "--announce needs --publish URL"},
		{"--announce=perhaps", "--announce"},
	},
	"bad-lines": {{"--bad-lines x --skip-bad=false", "--bad-lines contradicts --skip-bad=false"}},
	"canary": {
		{"--canary 500ms", "--canary 500ms: must be at least 1s"},
		{"--canary 1m --dry-run", "--canary contradicts --dry-run: nothing is appended"},
		{"--canary 1m --replace", "--canary contradicts --replace: the run ends"},
		{"--canary 1m --flush-interval 0", "--canary needs a --flush-interval above 0"},
	},
	"codec": {{"--codec zip", "--codec zip: this build has "}},
	"columns": {
		{"--columns id,a,a", `--columns: columns 2 and 3 are both named "a"`},
		{"--columns id, --format csv", "--columns: column 2 has no name"},
		{"--columns id --format json", "--columns: only csv and tsv have cells, not json"},
		{"--columns id --from kafka://a:1/jobs", "--columns is for files, not for kafka://"},
	},
	"control-fields": {{"--control-fields=perhaps", "--control-fields"}},
	"delimiter": {
		{"--delimiter ; --from kafka://a:1/jobs", "--delimiter is for files, not for kafka://"},
		{"--delimiter ab", "--delimiter: ab: write one character"},
		{`--delimiter "`, "cannot separate cells"},
		{"--delimiter ; --format tsv", "--delimiter: only csv has a delimiter, not tsv"},
	},
	"drop": {
		{"--keep a --drop b", "fields are kept and dropped"},
		{"--drop a,,b", "the name of a field is empty"},
	},
	"dry-run": {
		{"--dry-run=perhaps", "--dry-run"},
		{"--dry-run --from postgres://u@h/d?table=t", "--dry-run cannot read postgres://: reading changes the source"},
	},
	"encoding": {
		{"--encoding latin2", `--encoding: unknown encoding "latin2": want one of [auto utf-8 utf-16 latin1 windows-1252]`},
		{"--encoding latin1 --format parquet", "--encoding: only ndjson, json, csv and tsv have an encoding, not parquet"},
		{"--encoding latin1 --from nats://a:1/JOBS", "--encoding is for files, not for nats://"},
	},
	"etcd": {
		{"--etcd 127.0.0.1:2379", "--etcd needs --publish URL"},
		{"--etcd http://127.0.0.1:2379 --publish file:///none/c", "--etcd: "},
	},
	"flush-every": {
		{"--flush-every -1", "--flush-every -1: must not be negative"},
		{"--flush-every many", "--flush-every"},
	},
	"flush-interval": {
		{"--flush-interval -1s", "--flush-interval -1s: must not be negative"},
		{"--flush-interval soon", "--flush-interval"},
	},
	"follow": {
		{"--follow=perhaps", "--follow"},
		{"--follow --from postgres://db/shop?query=SELECT&key=a", "a query is not followed"},
	},
	"format": {
		{"--format xml", "--format xml: write one of " + strings.Join(formatNames(), ", ")},
		{"--format files --from file:///dir/*", "--format files needs directories, not --from"},
		{"--format csv --from kafka://a:1/jobs", "--format csv is for files; write the format of messages in the URL"},
	},
	"from": {
		{"--from ftp://host/file", "unknown kind of source ftp://; want "},
		{"--from somewhere", "--from somewhere: write a URL ("},
		{"--from file://host/dir/*", "invalid URL file://host/dir/*: want file:///DIRECTORY/PATTERN"},
		{"--from s3:///dir/*", "names no bucket"},
		{"--from file:///dir/* more", "--from and files (more) are given"},
	},
	"header": {
		{"--header=false", "--header: without a row of names give them with --columns"},
		{"--header=false --columns id --format ndjson", "--header: only csv and tsv have cells, not ndjson"},
	},
	"id": {
		{"--id a --id-template {b}", "--id-field, --id and --id-template contradict each other"},
		{"--id a --id-field b", "--id-field, --id and --id-template contradict each other"},
		{"--id a..b", `--id: "a..b" is not the path of a field`},
		{"--id a --format files", "--id: the id of a file is its path"},
		{"--id a --from kafka://a:1/jobs", "--id: the id is the key of a message; write kafka://HOST:PORT[,...]/TOPIC?id=document"},
		{"--id a --from nats://a:1/JOBS?id=header:N", "--id: the id is not in the message; write nats://HOST:PORT[,...]/STREAM?id=document"},
		{"--id a --from postgres://db/shop?table=a", "--id: the id is the primary key"},
	},
	"id-field": {
		{"--id-field=", "--id-field is empty; give the name of the field that holds the id"},
		{"--id-field b --from kafka://a:1/jobs", "--id-field: the id is the key of a message"},
	},
	"id-template": {
		{"--id-template {a", `--id-template: "{a" has a { without a }`},
		{"--id-template a", "must have fields in braces"},
		{"--id-template {a}{b}", "has no text between two fields"},
		{"--id-template {a} --from kafka://a:1/jobs", "--id-template: the id is the key of a message"},
	},
	"keep":        {{"--keep a,,b", "the name of a field is empty"}},
	"max-bad":     {{"--max-bad 101", "--max-bad 101"}, {"--max-bad many", "--max-bad"}},
	"max-deletes": {{"--max-deletes -1", "--max-deletes -1"}, {"--max-deletes many", "--max-deletes"}},
	"max-rate":    {{"--max-rate 0.5", "--max-rate 0.5: want"}, {"--max-rate fast", "--max-rate"}},
	"metrics":     {{"--metrics 7072", "--metrics 7072: want HOST:PORT"}},
	"parquet-memory": {
		{"--parquet-memory 1KiB", "--parquet-memory 1KiB: must be at least 1 MiB"},
		{"--parquet-memory much", "--parquet-memory"},
	},
	"publish": {
		{"--publish ftp://host/c", "want s3://BUCKET/PREFIX or file:///DIRECTORY"},
		{"--publish bucket", "want s3://BUCKET/PREFIX or file:///DIRECTORY"},
	},
	"queue": {{"--queue=", "--queue is missing: give the directory of the queue"}},
	"quiet": {{"--quiet=perhaps", "--quiet"}},
	"rate": {
		{"--rate -1", "--rate -1: must be from 0 to"},
		{"--rate NaN", "--rate NaN: must be from 0 to"},
		{"--rate fast", "--rate"},
	},
	"rename": {
		{"--rename a", "--rename: a: write OLD=NEW, each OLD once"},
		{"--rename a=b,a=c", "--rename: a=c: write OLD=NEW, each OLD once"},
		{"--rename a=c,b=c", `two fields are renamed to "c"`},
		{"--rename a=b --drop a", `field "a" is renamed, but is not kept`},
	},
	"replace": {
		{"--replace --follow --resume", "--resume contradicts --replace: the input is read from its start; --follow contradicts --replace: the input must end"},
		{"--replace --skip-bad", "--skip-bad contradicts --replace: the document of a skipped record would be deleted"},
		{"--replace --bad-lines x", "--bad-lines contradicts --replace"},
		{"--replace --flush-every 3 --flush-interval 1s", "--flush-every contradicts --replace: all changes are flushed at once"},
		{"--replace --segment-age 1m --rate 5", "--rate contradicts --replace"},
		{"--replace --metrics 127.0.0.1:1 --max-bad 1 --max-rate 2", "--max-rate contradicts --replace"},
		{"--replace --max-deletes 101", "--max-deletes 101"},
		{"--replace --from kafka://a:1/jobs", "--replace cannot read kafka://: it delivers changes, not the whole state of a collection"},
		{"--replace --from nats://a:1/JOBS", "--replace cannot read nats://"},
		{"--replace --from postgres://u@h/d?table=t", "--replace cannot read table=t, which is followed by its changes: write query=SELECT * FROM t&key=COLUMN,..."},
		{"--replace=perhaps", "--replace"},
	},
	"resume":        {{"--resume=perhaps", "--resume"}},
	"s3-endpoint":   {{"--s3-endpoint 127.0.0.1:1 --from s3://docs/", `endpoint "127.0.0.1:1": want http://HOST:PORT or https://HOST:PORT`}},
	"s3-path-style": {{"--s3-path-style=perhaps", "--s3-path-style"}},
	"segment-age": {
		{"--segment-age -1s", "--segment-age -1s: must not be negative"},
		{"--segment-age old", "--segment-age"},
	},
	"segment-size": {
		{"--segment-size 32767", "--segment-size 32767: must be between 32 KiB and 4 GiB"},
		{"--segment-size 5GiB", "--segment-size 5GiB: must be between 32 KiB and 4 GiB"},
		{"--segment-size big", "--segment-size"},
	},
	"shards": {
		{"--shards 3", "--shards 3: must be a power of two from 1 to 1024"},
		{"--shards many", "--shards"},
	},
	"skip-bad": {{"--skip-bad=perhaps", "--skip-bad"}},
	"time-field": {
		{"--time-field a..b", `--time-field: "a..b" is not the path of a field`},
		{"--time-field a --replace", "--time-field contradicts --replace: the run ends"},
	},
	"typed-cells": {
		{"--typed-cells --from nats://a:1/JOBS", "--typed-cells is for files, not for nats://"},
		{"--typed-cells=perhaps", "--typed-cells"},
		{"--typed-cells --format ndjson", "--typed-cells: only csv and tsv have cells, not ndjson"},
	},
}

// TestWrongUseOfAppend: the wrong use of each flag is refused before anything is written.
func TestWrongUseOfAppend(t *testing.T) {
	var flags []string
	newAppend(&cli.Env{}).Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	require.Equal(t, flags, slices.Sorted(maps.Keys(wrongUses)), "each flag needs a test of its wrong use")
	for name, uses := range wrongUses {
		for _, use := range uses {
			t.Run(use.flags, func(t *testing.T) {
				require.Contains(t, use.flags, "--"+name)
				require.Contains(t, fromFailure(t, cli.ExitUsage, strings.Fields(use.flags)...), use.want)
			})
		}
	}
}
