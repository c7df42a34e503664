package main

import (
	"context"
	"errors"
	"fmt"
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

// shardFlags holds the flag of a sharded collection.
type shardFlags struct{ etcd string }

func (s *shardFlags) addFlag(flags *pflag.FlagSet) {
	flags.StringVar(&s.etcd, "etcd", "", "etcd servers of a sharded collection, instead of --servers: HOST:PORT,... or etcd://HOST:PORT,.../PREFIX[?ca=FILE&...]")
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
		Pool:   boxcarrpc.PoolOptions{Size: poolSize, MaxWait: r.timeout, Methods: docservice.IdempotentMethods(), Logger: env.Log},
		Store:  etcdmap.Options{Timeout: r.timeout, Logger: env.Log},
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

// awaitPlacement reads the placement. The Store has the timeout.
func (s *shardFlags) awaitPlacement(ctx context.Context, store *etcdmap.Store, collection string) error {
	if err := store.Refresh(ctx, 0); err != nil {
		return fmt.Errorf("etcd at %s does not answer; is it running there? %w", s.etcd, err)
	}
	if m, _ := store.Map(); m == nil {
		return fmt.Errorf("collection %s has no placement in %s; is it sharded? The first daemon with --column makes the placement", collection, s.etcd)
	}
	return nil
}

// documents is a docservice.Client, or a client of a sharded collection.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error)
}
