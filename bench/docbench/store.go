package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// stores are the constructors by name; newStore parses the settings after it.
var stores = map[string]func(*rig, tuning) store{
	"docstore": func(r *rig, _ tuning) store { return &docstoreStore{rig: r, name: "docstore", codec: "s2"} },
	"docstore-plain": func(r *rig, _ tuning) store {
		return &docstoreStore{rig: r, name: "docstore-plain", codec: "s2", plain: true}
	},
	"docstore-none": func(r *rig, _ tuning) store { return &docstoreStore{rig: r, name: "docstore-none", codec: "none"} },
	"docstore-zstd": func(r *rig, _ tuning) store { return &docstoreStore{rig: r, name: "docstore-zstd", codec: "zstd"} },
	"docstore-stub": func(r *rig, _ tuning) store {
		return &docstoreStub{docstoreStore: docstoreStore{rig: r, name: "docstore-stub", codec: "s2"}}
	},
	"docstore-grpc": func(r *rig, _ tuning) store {
		return &docstoreStub{docstoreStore: docstoreStore{rig: r, name: "docstore-grpc", codec: "s2"}, overGRPC: true}
	},
	"memcached": func(r *rig, t tuning) store { return &memcachedStore{rig: r, name: "memcached", tuning: t} },
	"memcached+pebble": func(r *rig, _ tuning) store {
		return &memcachedStore{rig: r, name: "memcached+pebble", disk: &grpcStore{rig: r, name: "memcached+pebble"}}
	},
	"go-redis":    func(r *rig, t tuning) store { return &redisStore{rig: r, open: openGoRedis, tuning: t} },
	"rueidis":     func(r *rig, t tuning) store { return &redisStore{rig: r, open: openRueidis, tuning: t} },
	"grpc+pebble": func(r *rig, t tuning) store { return &grpcStore{rig: r, name: "grpc+pebble", tuning: t} },
	"postgresql":  func(r *rig, _ tuning) store { return &postgresStore{rig: r} },
}

func storeNames() string {
	names := make([]string, 0, len(stores))
	for name := range stores {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// missingError reports a rival that is not installed.
type missingError struct{ command, install string }

func (e missingError) Error() string {
	return fmt.Sprintf("%s is not here; install %s (bench/setup does)", e.command, e.install)
}
