package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// redisStore is Redis without persistence, behind one of two clients.
type redisStore struct {
	server
	rig  *rig
	open func(address string, callers int) (client, error)
}

func (s *redisStore) load(ctx context.Context, c *corpus) (figures, error) {
	command, err := installed("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, s.rig, "redis", func(host, port string) *exec.Cmd {
		return exec.Command(command, "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.rig.dir)
	}); err != nil {
		return nil, err
	}
	to := redis.NewClient(&redis.Options{Addr: s.address})
	defer func() { _ = to.Close() }() // its last command has completed
	pipe := to.Pipeline()
	err = c.each(func(id string, line []byte) error {
		pipe.Set(ctx, id, append([]byte(nil), line...), 0)
		if pipe.Len() < 1000 {
			return nil
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil || pipe.Len() == 0 {
		return nil, err
	}
	_, err = pipe.Exec(ctx)
	return nil, err
}

func (s *redisStore) client(callers int) (client, error) { return s.open(s.address, callers) }

type goRedisClient struct{ *redis.Client }

func openGoRedis(address string, callers int) (client, error) {
	return goRedisClient{redis.NewClient(&redis.Options{Addr: address, PoolSize: callers})}, nil
}

func (c goRedisClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	value, err := c.Get(ctx, id).Bytes()
	return append(dst, value...), err
}

func (c goRedisClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	values, err := c.MGet(ctx, ids...).Result()
	if err != nil {
		return err
	}
	for i, value := range values {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("redis has no %s", ids[i])
		}
		if err := fn(i, unsafe.Slice(unsafe.StringData(text), len(text))); err != nil { // fn does not modify it
			return err
		}
	}
	return nil
}

func (c goRedisClient) close() error { return c.Close() }

type rueidisClient struct{ rueidis.Client }

// rueidisFlush is the time for which rueidis gathers commands before it writes them; its default is
// 0. This halves the processor time of both sides, and a lone caller does not wait (docs/serving.md,
// Rivals at their best).
const rueidisFlush = 50 * time.Microsecond

func openRueidis(flush time.Duration) func(address string, _ int) (client, error) {
	return func(address string, _ int) (client, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, MaxFlushDelay: flush})
		return rueidisClient{c}, err
	}
}

func (c rueidisClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	value, err := c.Do(ctx, c.B().Get().Key(id).Build()).AsBytes()
	return append(dst, value...), err
}

func (c rueidisClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	values, err := c.Do(ctx, c.B().Mget().Key(ids...).Build()).ToArray()
	if err != nil {
		return err
	}
	for i := range values {
		value, err := values[i].AsBytes()
		if err != nil {
			return fmt.Errorf("%s: %w", ids[i], err)
		}
		if err := fn(i, value); err != nil {
			return err
		}
	}
	return nil
}

func (c rueidisClient) close() error {
	c.Close()
	return nil
}
