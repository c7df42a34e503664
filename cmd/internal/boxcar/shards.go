package boxcar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/settings"
	"docstore/docservice"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded/etcdclient"
)

// shardedPoolSize is the number of slots in each column: a page of a scan reads many shards
// at the same time.
const shardedPoolSize = 8

// shardFlags holds the flags of a sharded collection.
type shardFlags struct{ etcd, cache string }

func (s *shardFlags) addFlag(flags *pflag.FlagSet) {
	flags.StringVar(&s.etcd, "etcd", "", "etcd servers of a sharded collection, instead of --servers: HOST:PORT,... or etcd://HOST:PORT,.../PREFIX[?ca=FILE&...]")
}

// Values of --cache besides a directory.
const (
	cacheAuto = "auto"
	cacheNone = "none"
)

// addCacheFlag adds the flag of a command that opens a client.
func (s *shardFlags) addCacheFlag(flags *pflag.FlagSet) {
	flags.StringVar(&s.cache, "cache", cacheAuto, "directory that keeps the last placement and servers of --etcd, for runs while etcd is away; auto: docstore in the user's cache directory; none")
}

// cacheDir returns the directory for a collection, empty for none.
func (s *shardFlags) cacheDir(env *cli.Env, collection string) string {
	sum := sha256.Sum256([]byte(s.etcd + "\n" + collection))
	name := hex.EncodeToString(sum[:8])
	switch s.cache {
	case cacheNone, "": // commands without the flag have no cache
		return ""
	case cacheAuto:
		dir, err := os.UserCacheDir()
		if err == nil {
			dir = filepath.Join(dir, "docstore", name)
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			env.Log.Debug("the placement is not kept for runs without etcd", "error", err)
			return ""
		}
		return dir
	}
	return filepath.Join(s.cache, name)
}

// check reports a conflict with the flag that gives servers, named other. One of them on the
// command line overrides the other of the environment or of a file.
func (s *shardFlags) check(flags *pflag.FlagSet, other string) error {
	own, others := flags.Lookup("etcd"), flags.Lookup(other)
	switch {
	case s.etcd == "" || !others.Changed:
		return nil
	case settings.OnCommandLine(own) == settings.OnCommandLine(others):
		return cli.Usagef("--etcd and --%s exclude each other: the servers of a sharded collection are in etcd; give one of them", other)
	case settings.OnCommandLine(others):
		s.etcd = ""
	}
	return nil
}

// openStore returns the placement of a collection when it has been read.
func (s *shardFlags) openStore(ctx context.Context, env *cli.Env, collection string, timeout time.Duration) (*etcdmap.Store, error) {
	store, err := etcdmap.Open(s.etcd, collection, &etcdmap.Options{Timeout: timeout, Logger: env.Log})
	if err != nil {
		return nil, cli.Usagef("--etcd %s: %w", s.etcd, err)
	}
	if err := s.awaitPlacement(ctx, store, collection); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// states returns the states of the live servers of a collection.
func (s *shardFlags) states(ctx context.Context, env *cli.Env, collection string, timeout time.Duration) (states []placement.ServerState, err error) {
	store, err := s.openStore(ctx, env, collection, timeout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.States(ctx)
}

// open returns a client of a sharded collection when it has read the placement. It waits for
// no server: calls do, for one of the column that they ask.
func (s *shardFlags) open(ctx context.Context, env *cli.Env, r *serverFlags, collection string, poolSize int) (*etcdclient.Client, error) {
	o := &etcdclient.Options{
		Pool:   boxcarrpc.PoolOptions{Size: poolSize, Zone: r.zone, MaxWait: r.timeout, Methods: docservice.IdempotentMethods(), Logger: env.Log},
		Store:  etcdmap.Options{Timeout: r.timeout, Logger: env.Log},
		Dir:    s.cacheDir(env, collection),
		Logger: env.Log,
	}
	if err := r.security.apply(&o.Pool); err != nil {
		return nil, err
	}
	client, err := etcdclient.Open(s.etcd, collection, o)
	if err != nil {
		return nil, cli.Usagef("--etcd %s: %w", s.etcd, err)
	}
	if err := s.awaitPlacement(ctx, client.Store(), collection); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// awaitPlacement waits for the placement: of etcd, or the last one if etcd does not answer.
// The Store has the timeouts.
func (s *shardFlags) awaitPlacement(ctx context.Context, store *etcdmap.Store, collection string) error {
	m, changed := store.Map()
	if m != nil {
		return nil
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan error, 1)
	reading.Go(func() { read <- store.Refresh(ctx, 0) })
	select {
	case <-changed:
		return nil
	case err := <-read:
		m, _ = store.Map()
		switch {
		case m != nil:
			return nil
		case err != nil:
			return fmt.Errorf("etcd at %s does not answer; is it running there? %w", s.etcd, err)
		}
		return fmt.Errorf("collection %s has no placement in %s; is it sharded? The first daemon with --column makes the placement", collection, s.etcd)
	}
}

// documents is a docservice.Client, or a client of a sharded collection.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error)
}
