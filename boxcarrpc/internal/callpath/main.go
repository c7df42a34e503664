// Callpath lists the functions of the client that one unary call passes through: a call
// without metadata, hedge or retry, by the only caller of a pool. It needs an instrumented
// build of the packages to count and of itself:
//
//	packages=docstore/boxcarrpc,docstore/boxcarrpc/internal/conn,docstore/boxcarrpc/internal/spin
//	go run -cover -covermode atomic -coverpkg $packages,docstore/boxcarrpc/internal/callpath \
//		./boxcarrpc/internal/callpath
//
// Add docstore/boxcarrpc/core for the steps of the ladder. The functions of package wire,
// which encode and decode a frame, cannot be counted: the server of the program calls them,
// too.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"runtime/coverage"
	"strings"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
)

func main() {
	log.SetFlags(0)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go serve(ln)
	pool, err := boxcarrpc.NewPool(discovery.Static(ln.Addr().String()), &boxcarrpc.PoolOptions{Size: 1})
	check(err)
	dst := make([]byte, 0, 64)
	call := func() {
		out, err := pool.Call(context.Background(), "m", []byte("request"), dst)
		check(err)
		if string(out) != "response" {
			log.Fatalf("response is %q", out)
		}
	}
	var fewest []string
	for range 10 { // a timer may run during a call
		for range 100 {
			call()
		}
		check(coverage.ClearCounters())
		call()
		if functions := executed(); fewest == nil || len(functions) < len(fewest) {
			fewest = functions
		}
	}
	fmt.Println(strings.Join(fewest, "\n"))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// executed returns the functions that were executed since the counters were cleared.
func executed() (functions []string) {
	dir, err := os.MkdirTemp("", "callpath")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	check(coverage.WriteMetaDir(dir))
	check(coverage.WriteCountersDir(dir))
	out, err := exec.Command("go", "tool", "covdata", "func", "-i", dir).Output()
	check(err)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] != "total" && f[2] != "0.0%" && !strings.Contains(f[0], "/callpath/") {
			functions = append(functions, f[0]+" "+f[1])
		}
	}
	return functions
}

// serve is a server of one connection. It uses only packages that are not counted.
func serve(ln net.Listener) {
	c, err := ln.Accept()
	check(err)
	_, err = c.Write(wire.AppendHello(nil, wire.Hello{Version: wire.Version, OldestVersion: wire.OldestVersion, MaxLanes: 1, MaxRequest: 1 << 20}))
	check(err)
	var in bytes.Buffer
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		check(err)
		in.Write(b[:n])
		for {
			f, n, err := wire.ParseFrame(in.Bytes())
			check(err)
			if n == 0 {
				break
			}
			_, err = c.Write(answer(f))
			check(err)
			in.Next(n)
		}
	}
}

func answer(f wire.Frame) []byte {
	switch f.Type {
	case wire.TypeLease:
		return wire.AppendSlot(nil, wire.TypeGrant, f.Lane, 0)
	case wire.TypePing:
		token, err := f.Ping()
		check(err)
		return wire.AppendPing(nil, wire.TypePong, token)
	case wire.TypeRequest:
		r, _, _, err := f.Request()
		check(err)
		time.Sleep(time.Millisecond) // the caller waits in its read
		return wire.AppendResponse(nil, f.Lane, wire.FlagProcessed, wire.Response{Sequence: r.Sequence, Total: 8, Lowest: wire.NoSlot}, []byte("response"))
	}
	return nil
}
