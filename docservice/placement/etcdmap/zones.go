package etcdmap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// MaxZones bounds the number of zones.
const MaxZones = 1000

// Zone returns the index of a zone and the number of zones. A new zone is added to the list,
// which only grows: the servers of zone i of n claim the rows i, i+n, i+2n. Rows that were
// claimed before a zone was added are kept.
func (s *Store) Zone(ctx context.Context, name string) (index, zones int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	for {
		response, err := s.client.Get(ctx, s.zonesKey())
		if err != nil {
			return 0, 0, fmt.Errorf("etcdmap: %w", err)
		}
		var list []string
		var revision int64
		for _, kv := range response.Kvs {
			if err := json.Unmarshal(kv.Value, &list); err != nil {
				return 0, 0, fmt.Errorf("etcdmap: %s: %w", kv.Key, err)
			}
			revision = kv.ModRevision
		}
		if i := slices.Index(list, name); i >= 0 {
			return i, len(list), nil
		}
		if len(list) >= MaxZones {
			return 0, 0, fmt.Errorf("etcdmap: zone %q: collection %q has %d zones already", name, s.collection, len(list))
		}
		content, err := json.Marshal(append(list, name))
		if err != nil {
			return 0, 0, err
		}
		done, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(s.zonesKey()), "=", revision)).
			Then(clientv3.OpPut(s.zonesKey(), string(content))).Commit()
		if err != nil {
			return 0, 0, fmt.Errorf("etcdmap: %w", err)
		}
		if done.Succeeded {
			return len(list), len(list) + 1, nil
		}
	}
}
