package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"docstore/bench/internal/process"
)

// A store serves documents from separate processes.
type store interface {
	// load starts the store, fills it with a corpus and returns the figures.
	load(ctx context.Context, c *corpus) (figures, error)
	// client returns a client for that many callers.
	client(callers int) (client, error)
	// processes returns the servers, to read their processor time and memory.
	processes() []*process.Process
	// stop ends the processes.
	stop() error
}

// figures are named by their unit.
type figures = map[string]float64

// A client fetches documents. It is safe for concurrent use.
type client interface {
	// get appends a document to dst.
	get(ctx context.Context, dst []byte, id string) ([]byte, error)
	// getMany calls fn for each of the ids, in any order; the document is valid until
	// it returns.
	getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error
	close() error
}

// A kind opens stores of a name.
type kind struct {
	bounded bool // obeys -memory_limit
	open    func(r *rig, name string) store
}

// stores are the kinds by name.
var stores = map[string]kind{
	"docstore":       docstoreKind("s2", nil),
	"docstore-none":  docstoreKind("none", nil),
	"docstore-zstd":  docstoreKind("zstd", nil),
	"docstore-plain": docstoreKind("s2", (*docstoreStore).plainClient),
	"docstore-stub":  docstoreKind("s2", (*docstoreStore).stubClient),
	"docstore-grpc":  docstoreKind("s2", (*docstoreStore).grpcClient),
	"memcached":      {true, func(r *rig, name string) store { return &memcachedStore{rig: r, name: name} }},
	"memcached+pebble": {true, func(r *rig, name string) store {
		return &memcachedStore{rig: r, name: name, disk: &grpcStore{rig: r, name: name}}
	}},
	"grpc+pebble":        {true, func(r *rig, name string) store { return &grpcStore{rig: r, name: name} }},
	"go-redis":           {false, func(r *rig, _ string) store { return &redisStore{rig: r, open: openGoRedis} }},
	"rueidis":            {false, func(r *rig, _ string) store { return &redisStore{rig: r, open: openRueidis(rueidisFlush)} }},
	"rueidis:flush-us=0": {false, func(r *rig, _ string) store { return &redisStore{rig: r, open: openRueidis(0)} }},
	"postgresql":         {false, func(r *rig, _ string) store { return &postgresStore{rig: r} }},
}

func storeNames() []string { return slices.Sorted(maps.Keys(stores)) }

// missingError reports a rival that is not installed.
type missingError struct{ command, install string }

func (e missingError) Error() string {
	return fmt.Sprintf("%s is not installed; install %s, for example with bench/setup", e.command, e.install)
}
