package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"docstore/bench/internal/files"
	"docstore/bench/internal/process"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

const collection = "bench"

// docstoreStore is docstore: the updater appends, a daemon indexes and serves.
type docstoreStore struct {
	rig          *rig
	name         string
	codec        string
	open         func(s *docstoreStore, callers int) (client, error) // nil: over Boxcar, the client decodes
	corpus       *corpus
	arrivals     *arrivals // segments to deliver; nil until they are needed
	dir          string
	daemon       *process.Process
	boxcar, http string
	grpc         string
}

// load appends the corpus, has a daemon index it, and starts it a second time.
func (s *docstoreStore) load(ctx context.Context, c *corpus) (f figures, err error) {
	s.dir, s.corpus = filepath.Join(s.rig.dir, s.name), c
	if _, err := s.rig.command("docstore-updater"); err != nil { // do not measure the build
		return nil, err
	}
	f = figures{}
	seconds := func(name string, what func(context.Context) error) {
		if err == nil {
			started := time.Now()
			err = what(ctx)
			f[name] = time.Since(started).Seconds()
		}
	}
	seconds("append seconds", s.append)
	if err == nil && s.rig.memory > 0 {
		err = forget(s.queue()) // the daemon starts with a cold page cache
	}
	seconds("first ready seconds", s.serve)
	if err == nil {
		err = s.daemon.Stop()
	}
	seconds("second ready seconds", s.serve)
	if err != nil {
		return nil, err
	}
	for name, dir := range map[string]string{"queue bytes": s.queue(), "index bytes": filepath.Join(s.dir, "data")} {
		bytes, err := files.Bytes(dir, "")
		if err != nil {
			return nil, err
		}
		f[name] = float64(bytes)
	}
	return f, nil
}

func (s *docstoreStore) queue() string { return filepath.Join(s.dir, "queue") }

// append runs the updater over the corpus.
func (s *docstoreStore) append(ctx context.Context) error {
	return s.appendTo(ctx, s.queue(), s.corpus.size())
}

// appendTo appends documents of the corpus to a queue.
func (s *docstoreStore) appendTo(ctx context.Context, queue string, count int, flags ...string) error {
	updater, err := s.rig.command("docstore-updater")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, updater, append([]string{"append", "--queue", queue, "--codec", s.codec, "--quiet"}, flags...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = writeLines(input, s.corpus, count)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("docstore-updater append: %w", err)
	}
	return nil
}

// forget drops the files of a directory from the page cache.
func forget(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := file.Sync(); err != nil { // only clean pages can be dropped
			return err
		}
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// writeLines writes documents, a line each, starting over at the end of the corpus, and closes the
// writer.
func writeLines(to io.WriteCloser, c *corpus, count int) (err error) {
	out := bufio.NewWriterSize(to, 1<<20)
	var line []byte
	for n := 0; n < count && err == nil; n++ {
		line = append(c.line(line[:0], n%c.size()), '\n')
		_, err = out.Write(line)
	}
	return errors.Join(err, out.Flush(), to.Close())
}

// The daemon's --memory is the memory limit divided by daemonShare; the rest is for the Go runtime and
// the page cache.
const daemonShare = 4

// leastDaemonMemory is the minimum of --memory.
const leastDaemonMemory = 16 << 20

// serve starts the daemon and waits until it is ready.
func (s *docstoreStore) serve(ctx context.Context) (err error) {
	daemon, err := s.rig.command("docserviced")
	if err != nil {
		return err
	}
	if err := process.FreeAddresses(&s.boxcar, &s.http, &s.grpc); err != nil {
		return err
	}
	args := []string{"serve", "--collection", collection + "=" + s.queue(), "--data", filepath.Join(s.dir, "data"),
		"--boxcar", s.boxcar, "--http", s.http, "--grpc", s.grpc, "--quiet"}
	if s.rig.memory > 0 {
		args = append(args, "--memory", strconv.FormatInt(max(leastDaemonMemory, s.rig.memory/daemonShare), 10))
	}
	if s.daemon, err = s.rig.start(s.name, exec.Command(daemon, args...)); err != nil {
		return err
	}
	return s.daemon.Ready(ctx, "http://"+s.http+"/readyz")
}

func (s *docstoreStore) processes() []*process.Process { return []*process.Process{s.daemon} }

func (s *docstoreStore) stop() error { return s.daemon.Stop() }

func docstoreKind(codec string, open func(s *docstoreStore, callers int) (client, error)) kind {
	return kind{true, func(r *rig, name string) store { return &docstoreStore{rig: r, name: name, codec: codec, open: open} }}
}

func (s *docstoreStore) client(callers int) (client, error) {
	if s.open != nil {
		return s.open(s, callers)
	}
	return s.boxcarClient(callers)
}

// plainClient returns a client for which the daemon decodes.
func (s *docstoreStore) plainClient(callers int) (client, error) {
	c, err := s.boxcarClient(callers)
	c.Client = c.Plain()
	return c, err
}

// docstoreClient is a pool of slots and the client over it.
type docstoreClient struct {
	pool *boxcarrpc.Pool
	*docservice.Client
}

func (s *docstoreStore) boxcarClient(callers int) (docstoreClient, error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(s.boxcar), &boxcarrpc.PoolOptions{Size: callers, Methods: docservice.IdempotentMethods()})
	return docstoreClient{pool, docservice.NewClient(pool, collection)}, err
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
