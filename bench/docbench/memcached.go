package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/process"
)

// memcachedStore is memcached behind gomemcache. It holds all documents, unless memory is limited:
// then misses are served by a store on disk that shares the memory, or by the benchmark, which is an
// upper bound. The client stores such a document in memcached, and it counts as fetched.
type memcachedStore struct {
	server
	rig  *rig
	name string
	disk *grpcStore // nil for none
	made *corpus    // serves misses; nil if there are none, or with a disk
}

// memcachedMegabytes is larger than every corpus.
const memcachedMegabytes = 12288

// memcachedShare is the percentage of the memory limit for items; the hash table and connections need
// the rest.
const memcachedShare = 80

// memcachedDiskShare is the same with a store on disk.
const memcachedDiskShare = 40

// memcachedLoaders is the number of goroutines that fill it.
const memcachedLoaders = 8

// memcachedTimeout is long enough for a busy machine.
const memcachedTimeout = 10 * time.Second

func (s *memcachedStore) load(ctx context.Context, c *corpus) (figures, error) {
	command, err := installed("memcached", "memcached")
	if err != nil {
		return nil, err
	}
	megabytes := memcachedMegabytes
	switch {
	case s.disk != nil:
		if _, err := s.disk.load(ctx, c); err != nil {
			return nil, err
		}
		if s.rig.memory > 0 {
			megabytes = int(s.rig.memory >> 20 * memcachedDiskShare / 100)
		}
	case s.rig.memory > 0:
		megabytes = int(s.rig.memory >> 20 * memcachedShare / 100)
		s.made = c
	}
	largest := "16m" // the maximum of documents
	if s.rig.memory > 0 {
		largest = "1m" // must be less than half of the memory
	}
	if err := s.start(ctx, s.rig, s.name, func(host, port string) *exec.Cmd {
		return exec.Command(command, "-u", "root", "-l", host, "-p", port, "-U", "0", "-m", strconv.Itoa(megabytes), "-c", "4096", "-I", largest, "-t", "2")
	}); err != nil {
		return nil, err
	}
	to := memcache.New(s.address)
	to.Timeout, to.MaxIdleConns = memcachedTimeout, memcachedLoaders
	var group errgroup.Group
	for part := range memcachedLoaders {
		group.Go(func() error {
			var line []byte
			for n := part; n < c.size(); n += memcachedLoaders {
				line = c.line(line[:0], n)
				err := to.Set(&memcache.Item{Key: memcachedKey(c.id(n)), Value: line})
				if err != nil && (s.rig.memory == 0 || !refused(err)) {
					return err
				}
			}
			return nil
		})
	}
	return nil, errors.Join(group.Wait(), to.Close())
}

// memcachedKey returns the id, or its hash if memcached does not allow it as a key.
func memcachedKey(id string) string {
	if len(id) <= 250 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (s *memcachedStore) processes() []*process.Process {
	all := s.server.processes()
	if s.disk != nil {
		all = append(all, s.disk.processes()...)
	}
	return all
}

func (s *memcachedStore) stop() error {
	err := s.server.stop()
	if s.disk != nil {
		err = errors.Join(err, s.disk.stop())
	}
	return err
}

type memcachedClient struct {
	*memcache.Client
	behind client // serves misses; nil if there are none
	missed *atomic.Int64
}

func (s *memcachedStore) client(callers int) (_ client, err error) {
	c := memcachedClient{Client: memcache.New(s.address), missed: new(atomic.Int64)}
	c.MaxIdleConns = callers
	c.Timeout = memcachedTimeout
	switch {
	case s.disk != nil:
		c.behind, err = s.disk.client(callers)
	case s.made != nil:
		c.behind = madeClient{s.made}
	}
	return c, err
}

// madeClient serves documents from the benchmark's memory.
type madeClient struct{ corpus *corpus }

func (c madeClient) get(_ context.Context, dst []byte, id string) ([]byte, error) {
	n, ok := c.corpus.number(id)
	if !ok {
		return dst, fmt.Errorf("no document %s", id)
	}
	return c.corpus.line(dst, n), nil
}

func (c madeClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	for i, id := range ids {
		document, err := c.get(ctx, nil, id)
		if err != nil {
			return err
		}
		if err := fn(i, document); err != nil {
			return err
		}
	}
	return nil
}

func (madeClient) close() error { return nil }

// misses returns the number of misses so far.
func (c memcachedClient) misses() int64 { return c.missed.Load() }

// put stores a document after a miss.
func (c memcachedClient) put(id string, document []byte) error {
	c.missed.Add(1)
	err := c.Set(&memcache.Item{Key: memcachedKey(id), Value: document})
	if refused(err) {
		return nil
	}
	return err
}

// refused reports whether memcached had no memory for an item, which can happen with little memory
// and many writers.
func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "SERVER_ERROR out of memory")
}

func (c memcachedClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	item, err := c.Get(memcachedKey(id))
	if err == nil {
		return append(dst, item.Value...), nil
	}
	if !errors.Is(err, memcache.ErrCacheMiss) || c.behind == nil {
		return dst, err
	}
	start := len(dst)
	if dst, err = c.behind.get(ctx, dst, id); err != nil {
		return dst, err
	}
	return dst, c.put(id, dst[start:])
}

func (c memcachedClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = memcachedKey(id)
	}
	items, err := c.GetMulti(keys)
	if err != nil {
		return err
	}
	var missing []string
	var at []int
	for i, key := range keys {
		item := items[key]
		if item == nil {
			missing, at = append(missing, ids[i]), append(at, i)
			continue
		}
		if err := fn(i, item.Value); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if c.behind == nil {
		return fmt.Errorf("memcached has no %s", missing[0])
	}
	return c.behind.getMany(ctx, missing, func(i int, document []byte) error {
		if err := c.put(missing[i], document); err != nil {
			return err
		}
		return fn(at[i], document)
	})
}

func (c memcachedClient) close() error {
	err := c.Close()
	if c.behind != nil {
		err = errors.Join(err, c.behind.close())
	}
	return err
}
