package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"google.golang.org/grpc/credentials/insecure"

	"docstore/bench/internal/grpcbytes"
	"docstore/bench/internal/process"
)

// grpcStore serves documents from Pebble through grpc-go, without a message format, in a separate
// process.
type grpcStore struct {
	server
	rig  *rig
	name string
}

const (
	grpcChild   = "grpc-pebble" // the role of the server's process
	grpcGet     = "/bench.Documents/Get"
	grpcGetMany = "/bench.Documents/GetMany"
	pebbleCache = 2 << 30 // holds everything
	// Pebble's block cache is the memory limit divided by pebbleShare; the rest is for the Go
	// runtime and the page cache.
	pebbleShare = 8
)

func (s *grpcStore) load(ctx context.Context, c *corpus) (_ figures, err error) {
	dir := filepath.Join(s.rig.dir, s.name)
	db, err := openPebble(dir, pebbleCache)
	if err != nil {
		return nil, err
	}
	err = c.each(func(id string, line []byte) error { return db.Set([]byte(id), line, pebble.NoSync) })
	if err := errors.Join(err, db.Flush(), db.Compact(ctx, nil, []byte{0xff}, true), db.Close()); err != nil {
		return nil, err
	}
	cache := int64(pebbleCache)
	if s.rig.memory > 0 {
		cache = s.rig.memory / pebbleShare
		if err := forget(dir); err != nil { // the server starts with a cold page cache
			return nil, err
		}
	}
	return nil, s.start(ctx, s.rig, s.name, func(host, port string) *exec.Cmd {
		return process.Child(grpcChild, dir, net.JoinHostPort(host, port), strconv.FormatInt(cache, 10))
	})
}

func openPebble(dir string, cacheBytes int64) (*pebble.DB, error) {
	o := &pebble.Options{Cache: pebble.NewCache(cacheBytes), MemTableSize: 64 << 20}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return pebble.Open(dir, o)
}

// serveGRPC runs the server's process.
func serveGRPC(args []string) error {
	dir, address := args[0], args[1]
	cacheBytes, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	db, err := openPebble(dir, cacheBytes)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	get := func(dst, id []byte) ([]byte, error) {
		value, closer, err := db.Get(id)
		if err != nil {
			return nil, err
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value)))
		return append(dst, value...), closer.Close()
	}
	return grpcbytes.NewServer("bench.Documents", map[string]func(request []byte) ([]byte, error){
		"Get": func(request []byte) ([]byte, error) { return get(nil, request) },
		"GetMany": func(request []byte) (response []byte, err error) {
			return response, eachPart(request, func(id []byte) error {
				response, err = get(response, id)
				return err
			})
		},
	}).Serve(listener)
}

// eachPart calls fn for the parts of a message. Each follows its length.
func eachPart(message []byte, fn func(part []byte) error) error {
	for len(message) > 0 {
		if len(message) < 4 || uint64(len(message)-4) < uint64(binary.LittleEndian.Uint32(message)) {
			return errors.New("truncated message")
		}
		end := 4 + binary.LittleEndian.Uint32(message)
		if err := fn(message[4:end]); err != nil {
			return err
		}
		message = message[end:]
	}
	return nil
}

// grpcClient has a connection for each processor; more are not faster.
type grpcClient struct {
	grpcbytes.Conns
	calls atomic.Uint64
}

func (s *grpcStore) client(int) (client, error) {
	conns, err := grpcbytes.Connect(s.address, runtime.NumCPU(), insecure.NewCredentials())
	return &grpcClient{Conns: conns}, err
}

func (c *grpcClient) invoke(ctx context.Context, method string, request []byte) (response []byte, err error) {
	conn := c.Conns[c.calls.Add(1)%uint64(len(c.Conns))]
	err = conn.Invoke(ctx, method, &request, &response)
	return response, err
}

func (c *grpcClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	response, err := c.invoke(ctx, grpcGet, []byte(id))
	if err == nil {
		err = eachPart(response, func(document []byte) error {
			dst = append(dst, document...)
			return nil
		})
	}
	return dst, err
}

func (c *grpcClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	var request []byte
	for _, id := range ids {
		request = binary.LittleEndian.AppendUint32(request, uint32(len(id)))
		request = append(request, id...)
	}
	response, err := c.invoke(ctx, grpcGetMany, request)
	if err != nil {
		return err
	}
	i := 0
	err = eachPart(response, func(document []byte) error {
		i++
		return fn(i-1, document)
	})
	if err == nil && i != len(ids) {
		err = fmt.Errorf("%d documents for %d ids", i, len(ids))
	}
	return err
}

func (c *grpcClient) close() error { return c.Close() }
