package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sync/errgroup"
)

// memcachedStore is memcached behind gomemcache: with room for everything, or in a
// bounded memory as a cache beside a database which costs nothing, so that what is
// missing is put in and counts as fetched.
type memcachedStore struct {
	rig     *rig
	behind  *corpus // the database; nil if everything is in memcached
	server  *process
	address string
}

// memcachedMegabytes is more than a corpus has here, as a cache that holds everything is
// the best that memcached can do.
const memcachedMegabytes = 12288

// memcachedShare is the per cent of a bounded memory that its items get; the table of
// keys and the connections need the rest.
const memcachedShare = 80

// memcachedLoaders fill it together.
const memcachedLoaders = 8

// memcachedTimeout is for a machine that is busy.
const memcachedTimeout = 10 * time.Second

func (s *memcachedStore) load(ctx context.Context, c *corpus) (figures, error) {
	command, err := installed("memcached", "memcached")
	if err != nil {
		return nil, err
	}
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return nil, err
	}
	megabytes := memcachedMegabytes
	if s.rig.memory > 0 {
		megabytes = int(s.rig.memory >> 20 * memcachedShare / 100)
		s.behind = c
	}
	if s.server, err = s.rig.start(command, "-u", "root", "-l", host, "-p", port, "-U", "0", "-m", strconv.Itoa(megabytes), "-c", "4096", "-I", "16m", "-t", "2"); err != nil {
		return nil, err
	}
	if err := s.server.listening(ctx, s.address); err != nil {
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
				if err := to.Set(&memcache.Item{Key: memcachedKey(c.id(n)), Value: line}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nil, errors.Join(group.Wait(), to.Close())
}

// memcachedKey is the id, or where memcached takes no such key what stands for it.
func memcachedKey(id string) string {
	if len(id) <= 250 {
		plain := true
		for i := range len(id) {
			plain = plain && id[i] > ' ' && id[i] < 0x7f
		}
		if plain {
			return id
		}
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (s *memcachedStore) processes() []*process { return []*process{s.server} }
func (s *memcachedStore) stop() error           { return s.server.stop() }

type memcachedClient struct {
	*memcache.Client
	behind *corpus
	missed *atomic.Int64
}

func (s *memcachedStore) client(callers int) (client, error) {
	c := memcache.New(s.address)
	c.MaxIdleConns = callers
	c.Timeout = memcachedTimeout
	return memcachedClient{c, s.behind, new(atomic.Int64)}, nil
}

// misses is how many documents were not in memcached so far.
func (c memcachedClient) misses() int64 { return c.missed.Load() }

// fill puts a document in that was missing.
func (c memcachedClient) fill(id string) (*memcache.Item, error) {
	if c.behind == nil {
		return nil, fmt.Errorf("memcached has no %s", id)
	}
	n, ok := c.behind.number(id)
	if !ok {
		return nil, fmt.Errorf("there is no %s", id)
	}
	c.missed.Add(1)
	item := &memcache.Item{Key: memcachedKey(id), Value: c.behind.line(nil, n)}
	return item, c.Set(item)
}

func (c memcachedClient) get(_ context.Context, dst []byte, id string) ([]byte, error) {
	item, err := c.Get(memcachedKey(id))
	if errors.Is(err, memcache.ErrCacheMiss) {
		item, err = c.fill(id)
	}
	if err != nil {
		return dst, err
	}
	return append(dst, item.Value...), nil
}

func (c memcachedClient) getMany(_ context.Context, ids []string, fn func(i int, document []byte) error) error {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = memcachedKey(id)
	}
	items, err := c.GetMulti(keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		item := items[key]
		if item == nil {
			if item, err = c.fill(ids[i]); err != nil {
				return err
			}
		}
		if err := fn(i, item.Value); err != nil {
			return err
		}
	}
	return nil
}

func (c memcachedClient) close() error { return c.Close() }
