package main

import "slices"

// sizes of a report. The tiny one only tests that everything runs.
var sizes = []string{"tiny", "quick", "full"}

// A step runs one program once. Its name is the name of its table.
type step struct {
	name    string
	program string // of this module; or "gotest", which takes a package and a benchmark
	// args are common to all sizes.
	args              string
	tiny, quick, full string
	corpus            bool // the last argument is the file of real records
	// by names the settings in which the steps of one table differ.
	by []string
}

// command returns the arguments for a size.
func (s step) command(size string) string {
	return s.args + " " + map[string]string{"tiny": s.tiny, "quick": s.quick, "full": s.full}[size]
}

const (
	goEngines  = "docstore,pebble,goleveldb,badger,bbolt"
	allEngines = "docstore,pebble,goleveldb,badger,bbolt,leveldb,rocksdb-universal,lmdb,kyoto"
	growthArgs = "-rounds 1 -benchmarks fillrandom,readrandom,readmissing"
	shapeArgs  = "-engine " + goEngines + " -benchmarks fillrandom,readrandom,readmissing,readseq "
	allStores  = "docstore,docstore-none,memcached,go-redis,rueidis," + plainRueidis + ",grpc+pebble,postgresql"
	// plainRueidis is rueidis with its default, which does not gather commands.
	plainRueidis = "rueidis:flush-us=0"
)

// The settings in which the steps of a table differ.
var (
	growthBy = []string{"num"}
	shapesBy = []string{"key_size", "value_size", "prefix_size"}
)

// steps are in the order of the page.
var steps = []step{
	{
		name: "article", program: "dbbench", args: "-engine " + allEngines + " -benchmarks fillrandom,readrandom,readrandom:2,readmissing,readseq,readreverse,seekrandom",
		tiny: "-num 2000 -rounds 1", quick: "-num 1000000 -reads 200000 -rounds 3", full: "-num 10000000 -reads 1000000 -rounds 3",
	},
	{
		name: "latency", program: "dbbench", args: "-histogram -engine " + goEngines + " -benchmarks fillrandom,readrandom,readmissing",
		tiny: "-num 2000 -rounds 1", quick: "-num 500000 -reads 200000 -rounds 3", full: "-num 10000000 -reads 1000000 -rounds 3",
	},
	{
		name: "limited", program: "dbbench", args: "-memory_limit 536870912 -write_buffer_size 33554432 -bloom_bits 10 -benchmarks fillrandom,readrandom,readrandom:2,readmissing",
		tiny: "-engine docstore -num 2000 -rounds 1", quick: "-engine docstore,pebble -num 10000000 -reads 50000 -rounds 1",
		full: "-engine docstore,pebble,goleveldb,rocksdb-universal -num 10000000 -reads 300000 -rounds 3",
	},
	{
		name: "growth", by: growthBy, program: "dbbench", args: growthArgs,
		tiny: "-engine docstore -num 2000", quick: "-engine docstore,pebble -num 300000 -reads 200000", full: "-engine docstore,pebble -num 1000000 -reads 1000000",
	},
	{
		name: "growth", by: growthBy, program: "dbbench", args: growthArgs,
		tiny: "-engine docstore -num 4000", quick: "-engine docstore,pebble -num 1000000 -reads 200000", full: "-engine docstore,pebble -num 10000000 -reads 1000000",
	},
	{
		name: "growth", by: growthBy, program: "dbbench", args: growthArgs,
		tiny: "-engine docstore -num 8000", quick: "-engine docstore,pebble -num 3000000 -reads 200000", full: "-engine docstore,pebble -num 100000000 -reads 1000000",
	},
	{
		name: "workloads", program: "dbbench",
		args: "-engine " + goEngines + " -benchmarks fillseq,open,fillsync,fillbatch,readhot,overwrite,readwhilewriting,readwhilescanning," +
			"seekrandomwhilewriting,ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbewhilewriting,ycsbf,compact,fillrandom,deleterandom",
		tiny: "-num 2000 -rounds 1", quick: "-num 200000 -reads 50000 -rounds 3", full: "-num 4000000 -reads 1000000 -rounds 3",
	},
	{
		name: "shapes", by: shapesBy, program: "dbbench", args: shapeArgs + "-key_size 16 -prefix_size 0 -value_size 1024",
		tiny: "-num 2000 -rounds 1", quick: "-num 150000 -reads 100000 -rounds 3", full: "-num 2000000 -reads 1000000 -rounds 3",
	},
	{
		name: "shapes", by: shapesBy, program: "dbbench", args: shapeArgs + "-key_size 40 -prefix_size 0 -value_size 200",
		tiny: "-num 2000 -rounds 1", quick: "-num 300000 -reads 100000 -rounds 3", full: "-num 4000000 -reads 1000000 -rounds 3",
	},
	{
		name: "shapes", by: shapesBy, program: "dbbench", args: shapeArgs + "-key_size 40 -prefix_size 32 -value_size 200",
		tiny: "-num 2000 -rounds 1", quick: "-num 300000 -reads 100000 -rounds 3", full: "-num 4000000 -reads 1000000 -rounds 3",
	},
	{
		name: "rules", program: "article",
		tiny: "-memtable 65536 -flushes 5 -reads 100 -documents 50 -per_file 20 -duration 10ms -rounds 1", quick: "-memtable 1048576 -duration 2s -rounds 3",
		full: "-memtable 8388608 -duration 20s -rounds 3",
	},
	{
		name: "calls", program: "rpcbench", args: "-workloads calls",
		tiny: "-callers 1,64 -rounds 1 -duration 20ms", quick: "-callers 1,16,64,256,1024 -rounds 3 -duration 400ms",
		full: "-callers 1,4,16,64,256,1024 -rounds 7 -duration 1s",
	},
	{
		name: "sizes", program: "rpcbench", args: "-workloads sizes -contestants echo,boxcar,grpc-go-2,drpc,http",
		tiny: "-rounds 1 -duration 20ms", quick: "-rounds 3 -duration 300ms", full: "-rounds 5 -duration 1s",
	},
	{
		name: "rpc", program: "rpcbench", args: "-workloads tls,large,open,slow,bulk,apart",
		tiny: "-rounds 1 -duration 20ms", quick: "-rounds 5 -duration 400ms", full: "-rounds 7 -duration 1s",
	},
	{
		name: "connections", program: "rpcbench", args: "-workloads connections",
		tiny: "-rounds 1 -conns 3", quick: "-rounds 3 -conns 300", full: "-rounds 3 -conns 5000",
	},
	{
		name: "idle", program: "rpcbench", args: "-workloads idle",
		tiny: "-clients 10 -settle 0s -quiet 100ms", quick: "-quiet 20s", full: "-quiet 40s",
	},
	{
		name: "documents", program: "docbench", args: "-stores " + allStores,
		tiny:  "-made 500 -callers 1,64 -batch 1,50 -rounds 1 -duration 20ms",
		quick: "-made 200000 -callers 1,64 -batch 1,10,50 -rounds 3 -duration 700ms",
		full:  "-made 5000000 -callers 1,64 -batch 1,10,50 -distribution uniform,zipfian -rounds 5 -duration 3s",
	},
	{
		name: "debian", program: "docbench", args: "-stores docstore,docstore-none,docstore-zstd,memcached,go-redis,rueidis", corpus: true,
		tiny: "-callers 64 -batch 1 -rounds 1 -duration 20ms", quick: "-callers 1,64 -batch 1,50 -rounds 3 -duration 500ms", full: "-callers 1,64 -batch 1,10,50 -rounds 5 -duration 3s",
	},
	{
		name: "updater", program: "docbench", args: "-stores docstore -beside nothing,updater -callers 64 -batch 1",
		tiny: "-made 500 -rounds 1 -duration 20ms", quick: "-made 200000 -rounds 3 -duration 2s", full: "-made 5000000 -rounds 5 -duration 10s",
	},
	{
		name: "arrivals", program: "docbench", args: "-stores docstore -beside nothing,arrivals -callers 64 -batch 1",
		tiny: "-made 500 -rounds 1 -duration 200ms", quick: "-made 200000 -rounds 5 -duration 2s", full: "-made 5000000 -rounds 7 -duration 10s",
	},
	{
		name: "scarce", program: "docbench", args: "-stores docstore,memcached,memcached+pebble -callers 64 -batch 1 -distribution zipfian,uniform",
		tiny:  "-made 500 -rounds 1 -duration 20ms -memory_limit 134217728",
		quick: "-made 1300000 -rounds 3 -duration 2s -warmup 4s -memory_limit 134217728",
		full:  "-made 5000000 -rounds 5 -duration 10s -warmup 60s -memory_limit 536870912",
	},
	{name: "freshness", program: "freshness", tiny: "-duration 200ms", quick: "-duration 15s", full: "-duration 120s"},
	{name: "rollback", program: "gotest", args: "./docservice/follow Rollback", tiny: "-benchtime 1x", quick: "-benchtime 3x -count 3", full: "-benchtime 5x -count 5"},
	{name: "distribution", program: "gotest", args: "./queue/publish Distribution", tiny: "-benchtime 1x", quick: "-benchtime 2x -count 3", full: "-benchtime 5x -count 5"},
	{name: "columns", program: "gotest", args: "./test/e2e ^BenchmarkColumns$", tiny: "-benchtime 1x", quick: "-benchtime 5000x -count 3", full: "-benchtime 20000x -count 5"},
	{name: "router", program: "gotest", args: "./docservice/sharded ^Benchmark(Router|SlowRow)$", tiny: "-benchtime 1x", quick: "-benchtime 2000x -count 3", full: "-benchtime 10000x -count 5"},
	{name: "placement", program: "gotest", args: "./docservice/placement ^BenchmarkGrowth$/shards=256", tiny: "-benchtime 1x", quick: "-benchtime 100x -count 3", full: "-benchtime 1000x -count 5"},
	{name: "append", program: "gotest", args: "./test/e2e AppendBesideDisk", tiny: "-benchtime 1x", quick: "-benchtime 1x -count 5", full: "-benchtime 1x -count 9"},
	{name: "codec", program: "gotest", args: "./queue AppendBesideCodec -cpu 1", tiny: "-benchtime 1x", quick: "-benchtime 1x -count 3", full: "-benchtime 3x -count 5"},
	{name: "fetch", program: "gotest", args: "./queue ^Benchmark(Document|Codec)$ -cpu 1", tiny: "-benchtime 10x", quick: "-benchtime 20000x -count 3", full: "-benchtime 100000x -count 5"},
	{name: "indexing", program: "gotest", args: "./docservice/collection Indexing", tiny: "-benchtime 1x", quick: "-benchtime 1x -count 3", full: "-benchtime 1x -count 7"},
	{name: "ladder", program: "gotest", args: "./boxcarrpc ^BenchmarkAcquireRelease$", tiny: "-benchtime 100x", quick: "-count 3", full: "-count 7"},
}

// stepOf returns the first step of a table.
func stepOf(table string) (s step, ok bool) {
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == table })
	if i < 0 {
		return s, false
	}
	return steps[i], true
}

func stepNames() (names []string) {
	for _, s := range steps {
		if !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}
