package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

const collection = "bench"

// docstoreStore is ours: the updater appends, a daemon indexes and serves.
type docstoreStore struct {
	rig          *rig
	name         string
	codec        string
	plain        bool // the daemon decodes, not the client
	dir          string
	daemon       *process
	boxcar, http string
	grpc         string
}

func (s *docstoreStore) load(ctx context.Context, c *corpus) error {
	s.dir = filepath.Join(s.rig.dir, s.name)
	if err := s.append(ctx, c); err != nil {
		return err
	}
	started := time.Now()
	if err := s.serve(ctx); err != nil {
		return err
	}
	indexed := time.Since(started)
	if err := s.daemon.stop(); err != nil {
		return err
	}
	started = time.Now()
	if err := s.serve(ctx); err != nil {
		return err
	}
	fmt.Printf("# %s: ready %.2f s after the first start, %.2f s after the second\n", s.name, indexed.Seconds(), time.Since(started).Seconds())
	return nil
}

// append runs the updater over the corpus.
func (s *docstoreStore) append(ctx context.Context, c *corpus) error {
	updater, err := s.rig.command("docstore-updater")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, updater, "append", "--queue", filepath.Join(s.dir, "queue"), "--codec", s.codec, "--quiet")
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	started := time.Now()
	err = writeLines(input, c)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("docstore-updater append: %w", err)
	}
	bytes, err := bytesIn(filepath.Join(s.dir, "queue"))
	fmt.Printf("# %s: appended %.0f documents/s, %d MB\n", s.name, float64(c.size())/time.Since(started).Seconds(), bytes>>20)
	return err
}

func writeLines(to io.WriteCloser, c *corpus) error {
	out := bufio.NewWriterSize(to, 1<<20)
	err := c.each(func(_ string, line []byte) error {
		if _, err := out.Write(line); err != nil {
			return err
		}
		return out.WriteByte('\n')
	})
	return errors.Join(err, out.Flush(), to.Close())
}

// serve starts the daemon and waits until it is ready.
func (s *docstoreStore) serve(ctx context.Context) (err error) {
	daemon, err := s.rig.command("docserviced")
	if err != nil {
		return err
	}
	if s.boxcar, err = freeAddress(); err != nil {
		return err
	}
	if s.http, err = freeAddress(); err != nil {
		return err
	}
	if s.grpc, err = freeAddress(); err != nil {
		return err
	}
	args := []string{"serve", "--collection", collection + "=" + filepath.Join(s.dir, "queue"), "--data", filepath.Join(s.dir, "data"),
		"--boxcar", s.boxcar, "--http", s.http, "--grpc", s.grpc, "--quiet"}
	if s.daemon, err = s.rig.start(daemon, args...); err != nil {
		return err
	}
	for {
		if response, err := http.Get("http://" + s.http + "/readyz"); err == nil {
			_ = response.Body.Close() // its status says all
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.daemon.ended:
			return fmt.Errorf("docserviced has ended: %w\n%s", err, s.daemon.output.Bytes())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *docstoreStore) processes() []*process { return []*process{s.daemon} }

func (s *docstoreStore) stop() error { return s.daemon.stop() }

func (s *docstoreStore) client(callers int) (client, error) {
	c, err := openDocstore([]string{s.boxcar}, collection, callers)
	if s.plain {
		c.Client = c.Plain()
	}
	return c, err
}

// docstoreClient is a pool of slots and the client over it.
type docstoreClient struct {
	pool *boxcarrpc.Pool
	*docservice.Client
}

func openDocstore(servers []string, collection string, callers int) (docstoreClient, error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(servers...), &boxcarrpc.PoolOptions{Size: callers, Methods: docservice.IdempotentMethods()})
	if err != nil {
		return docstoreClient{}, err
	}
	return docstoreClient{pool, docservice.NewClient(pool, collection)}, nil
}

func (c docstoreClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	return c.Get(ctx, dst, id)
}

func (c docstoreClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	return c.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", ids[i], err)
		}
		return fn(i, document)
	})
}

func (c docstoreClient) close() error { return c.pool.Close() }

// runningStore is daemons that run already.
type runningStore struct {
	servers    []string
	collection string
}

func (s *runningStore) load(context.Context, *corpus) error { return nil }
func (s *runningStore) processes() []*process               { return nil }
func (s *runningStore) stop() error                         { return nil }
func (s *runningStore) client(callers int) (client, error) {
	return openDocstore(s.servers, s.collection, callers)
}
