package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// store is something that documents are fetched from, in processes of its own.
type store interface {
	// load starts the store, fills it with a corpus and returns what there is to be
	// told about that.
	load(ctx context.Context, c *corpus) (figures, error)
	// client returns one that so many callers share.
	client(callers int) (client, error)
	// processes are those that serve, for their processor time and memory.
	processes() []*process
	// stop ends the processes.
	stop() error
}

// figures are named by their unit.
type figures = map[string]float64

// client fetches. Many callers use it at once.
type client interface {
	// get appends a document to dst.
	get(ctx context.Context, dst []byte, id string) ([]byte, error)
	// getMany calls fn for each of the ids, in any order; the document is valid until
	// it returns.
	getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error
	close() error
}

// stores makes those there are, by name; newStore reads what may stand behind it.
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

// missingError is a rival that is not installed.
type missingError struct{ command, install string }

func (e missingError) Error() string {
	return fmt.Sprintf("%s is not here; install %s (bench/setup does)", e.command, e.install)
}
