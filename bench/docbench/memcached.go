package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// memcachedStore is memcached with room for everything, behind gomemcache.
type memcachedStore struct {
	rig     *rig
	server  *process
	address string
}

// memcachedMegabytes is more than a corpus has here, as a cache that holds everything is
// the best that memcached can do.
const memcachedMegabytes = "12288"

func (s *memcachedStore) load(ctx context.Context, c *corpus) error {
	command, err := installed("memcached", "memcached")
	if err != nil {
		return err
	}
	if s.address, err = freeAddress(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return err
	}
	if s.server, err = s.rig.start(command, "-u", "root", "-l", host, "-p", port, "-U", "0", "-m", memcachedMegabytes, "-c", "4096", "-I", "16m", "-t", "2"); err != nil {
		return err
	}
	if err := s.server.listening(ctx, s.address); err != nil {
		return err
	}
	to := memcache.New(s.address)
	to.Timeout = 10 * time.Second
	return c.each(func(id string, line []byte) error {
		return to.Set(&memcache.Item{Key: memcachedKey(id), Value: line})
	})
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

type memcachedClient struct{ *memcache.Client }

func (s *memcachedStore) client(callers int) (client, error) {
	c := memcache.New(s.address)
	c.MaxIdleConns = callers
	c.Timeout = 10 * time.Second
	return memcachedClient{c}, nil
}

func (c memcachedClient) get(_ context.Context, dst []byte, id string) ([]byte, error) {
	item, err := c.Get(memcachedKey(id))
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
			return fmt.Errorf("memcached has no %s", ids[i])
		}
		if err := fn(i, item.Value); err != nil {
			return err
		}
	}
	return nil
}

func (c memcachedClient) close() error { return c.Close() }
