// Package etcdclient opens clients of a sharded collection whose placement and servers are
// in etcd (package docservice/placement/etcdmap).
//
//	client, err := etcdclient.Open("10.0.0.1:2379,10.0.0.2:2379", "jobs", nil)
//	defer client.Close()
//	if err := client.WaitReady(ctx); err != nil { ... }
//	document, err := client.Get(ctx, nil, "job-17")
//
// A Client has one connection to etcd and a Pool for each column, whose servers are those
// that the registry of the column has. While etcd is unavailable, the last placement and the
// last servers stay in use. With Options.Dir a program also starts without etcd.
//
// A Client is safe for concurrent use.
package etcdclient

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded"
	"docstore/internal/vfs"
)

// Options configure a Client. Nil and zero values are the defaults.
type Options struct {
	// Pool has the options of the pool of each column. The default of Methods is
	// docservice.IdempotentMethods().
	Pool boxcarrpc.PoolOptions
	// Store has the options of the connection to etcd.
	Store etcdmap.Options
	// Dir is a directory for the last placement and the last servers of each column, which is
	// created. If etcd does not answer within a second after the start, they are used until it
	// does, which the log says. Programs may share the directory of a collection. The default
	// is none.
	Dir string
	// Logger logs columns without a pool and the use of Dir, and is the default of the other
	// two. The default discards it.
	Logger *slog.Logger
}

// Client fetches the documents of a collection. Its methods are those of sharded.Client.
type Client struct {
	*sharded.Client
	store *etcdmap.Store
}

// Open returns a client of the collection. endpoints are as of etcdmap.Open. It waits for
// nothing: see sharded.Client.WaitReady.
func Open(endpoints, collection string, opts *Options) (*Client, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Store.Logger == nil {
		o.Store.Logger = o.Logger
	}
	o.Store.FS = cmp.Or(o.Store.FS, vfs.OS)
	if o.Dir != "" {
		if err := vfs.MakeDir(o.Store.FS, o.Dir); err != nil {
			return nil, fmt.Errorf("etcdclient: %w", err)
		}
		o.Store.File, o.Store.FileAfter = mapFile(o.Dir), etcdWait
	}
	store, err := etcdmap.Open(endpoints, collection, &o.Store)
	if err != nil {
		return nil, err
	}
	client, err := sharded.NewClient(store, collection, ClientOptions(store, &o))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Client{client, store}, nil
}

// ClientOptions returns the options of a sharded.Client for a Store that the caller closes
// after the client. Dir must exist, and keeps only the servers.
func ClientOptions(store *etcdmap.Store, opts *Options) *sharded.Options {
	pool := opts.Pool
	if pool.Methods == nil {
		pool.Methods = docservice.IdempotentMethods()
	}
	if pool.Logger == nil {
		pool.Logger = opts.Logger
	}
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &sharded.Options{Logger: logger, Pool: func(column string) (*boxcarrpc.Pool, error) {
		registry, err := store.Column(column)
		if err != nil {
			return nil, err
		}
		own := pool // NewPool keeps it
		source := registry.Source(nil)
		if opts.Dir != "" {
			source = &kept{source: source, fs: cmp.Or(opts.Store.FS, vfs.OS), file: serversFile(opts.Dir, column), log: logger}
		}
		return boxcarrpc.NewPool(source, &own)
	}}
}

// Store returns the placement of the collection. Close closes it.
func (c *Client) Store() *etcdmap.Store { return c.store }

// Close closes the pools and the connection to etcd. Calls in progress fail.
func (c *Client) Close() error { return errors.Join(c.Client.Close(), c.store.Close()) }
