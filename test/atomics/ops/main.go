// Ops runs an operation of the index or of Boxcar many times, in a build with coverage counters,
// and writes the counters of these executions to a directory:
//
//	go run -cover -covermode atomic -coverpkg docstore/lsm/...,docstore/boxcarrpc/... ./test/atomics/ops get DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"runtime/coverage"
	"sync"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/lsm"
)

const (
	entries = 20_000
	// executions of an operation, a multiple of the callers
	executions = 64 * 200
)

func main() {
	log.SetFlags(0)
	run := map[string]func(measure func(callers int, one func(i int))){
		"get":      func(measure func(int, func(int))) { index(measure, get) },
		"miss":     func(measure func(int, func(int))) { index(measure, miss) },
		"multiget": func(measure func(int, func(int))) { index(measure, multiGet) },
		"call":     func(measure func(int, func(int))) { calls(measure, 1) },
		"calls":    func(measure func(int, func(int))) { calls(measure, 64) },
	}[os.Args[1]]
	run(func(callers int, one func(i int)) {
		times(callers, one) // files are opened, slots leased, buffers made
		check(coverage.ClearCounters())
		times(callers, one)
		check(coverage.WriteMetaDir(os.Args[2]))
		check(coverage.WriteCountersDir(os.Args[2]))
	})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// times runs an operation for each number below executions, by concurrent callers.
func times(callers int, one func(i int)) {
	var group sync.WaitGroup
	for first := range callers {
		group.Go(func() {
			for i := first; i < executions; i += callers {
				one(i)
			}
		})
	}
	group.Wait()
}

func key(i int) []byte { return fmt.Appendf(nil, "%08d", i) }

// index measures an operation of an index with one table.
func index(measure func(int, func(int)), one func(db *lsm.DB, i int)) {
	dir, err := os.MkdirTemp("", "atomics")
	check(err)
	db, err := lsm.Open(dir, nil)
	check(err)
	for i := range entries {
		check(db.Set(key(2*i), make([]byte, 16)))
	}
	check(db.Flush())
	measure(1, func(i int) { one(db, i) })
	check(db.Close())
	check(os.RemoveAll(dir))
}

func get(db *lsm.DB, i int) {
	var room [16]byte
	_, err := db.Get(room[:0], key(2*i))
	check(err)
}

func miss(db *lsm.DB, i int) {
	if _, err := db.Get(nil, key(2*i+1)); !errors.Is(err, lsm.ErrNotFound) {
		log.Fatal("get of a key that does not exist: ", err)
	}
}

// batch is the number of keys of a MultiGet.
const batch = 50

// multiGet gets the key of every batch-th i with those after it, so that an execution is one key.
func multiGet(db *lsm.DB, i int) {
	if i%batch != 0 {
		return
	}
	keys := make([][]byte, batch)
	for n := range keys {
		keys[n] = key(2 * ((i + n) % entries))
	}
	check(db.MultiGet(keys, func(_ int, _ []byte, err error) error { return err }))
}

// calls measures calls of an echo, on both sides.
func calls(measure func(int, func(int)), callers int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return append(dst, request...), nil
	}, nil)
	go func() { _ = server.Serve(ln) }() // until Close
	pool, err := boxcarrpc.NewPool(discovery.Static(ln.Addr().String()), &boxcarrpc.PoolOptions{Size: callers})
	check(err)
	measure(callers, func(int) {
		var room [64]byte
		_, err := pool.Call(context.Background(), "echo", []byte("request"), room[:0])
		check(err)
	})
	check(pool.Close())
	check(server.Close())
}
