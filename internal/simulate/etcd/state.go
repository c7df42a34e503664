package etcd

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// state is the data of an etcd. Its methods require Server.mu.
type state struct {
	revision  int64
	compacted int64 // earlier revisions are gone, and the events up to this one
	keys      map[string]*mvccpb.KeyValue
	events    []event // after compacted
	leases    map[int64]*lease
	lastLease int64
}

// event is a change of a key.
type event struct {
	revision int64
	*mvccpb.Event
}

type lease struct {
	ttl     int64 // seconds
	granted int   // counts grants and renewals: a timer of an earlier one has no effect
	expires time.Time
	keys    map[string]bool
}

func newState() *state {
	return &state{revision: 1, keys: map[string]*mvccpb.KeyValue{}, leases: map[int64]*lease{}}
}

// clone returns a copy. Key-values and events are never changed.
func (s *state) clone() *state {
	c := *s
	c.keys, c.events, c.leases = maps.Clone(s.keys), slices.Clone(s.events), map[int64]*lease{}
	for id, l := range s.leases {
		copied := *l
		copied.keys = maps.Clone(l.keys)
		c.leases[id] = &copied
	}
	return &c
}

// within reports whether a key is in a range of etcd: one key without an end, all keys from the
// first on with the end "\x00".
func within(key string, first, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(first)
	case len(end) == 1 && end[0] == 0:
		return key >= string(first)
	}
	return key >= string(first) && key < string(end)
}

func (s *state) get(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if r.Revision > s.revision {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	if r.Revision > 0 && r.Revision < s.compacted {
		return nil, rpctypes.ErrGRPCCompacted
	}
	keys := s.keys
	if r.Revision > 0 && r.Revision < s.revision {
		keys = s.at(r.Revision)
	}
	var found []*mvccpb.KeyValue
	for key, kv := range keys {
		if within(key, r.Key, r.RangeEnd) && inRevisions(kv.ModRevision, r.MinModRevision, r.MaxModRevision) &&
			inRevisions(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision) {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int {
		order := 0
		switch r.SortTarget {
		case pb.RangeRequest_VERSION:
			order = cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			order = cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			order = cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			order = bytes.Compare(a.Value, b.Value)
		}
		order = cmp.Or(order, bytes.Compare(a.Key, b.Key))
		if r.SortOrder == pb.RangeRequest_DESCEND {
			return -order
		}
		return order
	})
	answer := &pb.RangeResponse{Header: s.header(), Count: int64(len(found))}
	if r.CountOnly {
		return answer, nil
	}
	if r.Limit > 0 && int64(len(found)) > r.Limit {
		found, answer.More = found[:r.Limit], true
	}
	if r.KeysOnly {
		for i, kv := range found {
			found[i] = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		}
	}
	answer.Kvs = found
	return answer, nil
}

func inRevisions(revision, from, to int64) bool {
	return (from == 0 || revision >= from) && (to == 0 || revision <= to)
}

// at returns the keys at an earlier revision: it undoes the events after it.
func (s *state) at(revision int64) map[string]*mvccpb.KeyValue {
	keys := maps.Clone(s.keys)
	for _, e := range slices.Backward(s.events) {
		if e.revision <= revision {
			break
		}
		if e.PrevKv == nil {
			delete(keys, string(e.Kv.Key))
		} else {
			keys[string(e.Kv.Key)] = e.PrevKv
		}
	}
	return keys
}

func (s *state) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, Revision: s.revision, RaftTerm: 1}
}

// put puts a key at the next revision.
func (s *state) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	key := string(r.Key)
	before := s.keys[key]
	if key == "" {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: s.revision + 1, ModRevision: s.revision + 1, Version: 1}
	if before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
	} else if r.IgnoreLease || r.IgnoreValue {
		return nil, rpctypes.ErrGRPCKeyNotFound
	}
	if r.IgnoreValue {
		kv.Value = before.Value
	}
	if r.IgnoreLease {
		kv.Lease = before.Lease
	}
	if kv.Lease != 0 && s.leases[kv.Lease] == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.detach(before)
	if kv.Lease != 0 {
		s.leases[kv.Lease].keys[key] = true
	}
	s.keys[key] = kv
	s.events = append(s.events, event{s.revision + 1, &mvccpb.Event{Type: mvccpb.PUT, Kv: kv, PrevKv: before}})
	answer := &pb.PutResponse{Header: s.header()}
	if r.PrevKv {
		answer.PrevKv = before
	}
	return answer, nil
}

func (s *state) detach(kv *mvccpb.KeyValue) {
	if kv != nil && kv.Lease != 0 {
		if l := s.leases[kv.Lease]; l != nil {
			delete(l.keys, string(kv.Key))
		}
	}
}

// remove deletes a range at the next revision.
func (s *state) remove(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	answer := &pb.DeleteRangeResponse{Header: s.header()}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if !within(key, r.Key, r.RangeEnd) {
			continue
		}
		before := s.keys[key]
		s.detach(before)
		delete(s.keys, key)
		deleted := &mvccpb.KeyValue{Key: before.Key, ModRevision: s.revision + 1}
		s.events = append(s.events, event{s.revision + 1, &mvccpb.Event{Type: mvccpb.DELETE, Kv: deleted, PrevKv: before}})
		answer.Deleted++
		if r.PrevKv {
			answer.PrevKvs = append(answer.PrevKvs, before)
		}
	}
	return answer
}

// compare evaluates a comparison of a transaction.
func (s *state) compare(c *pb.Compare) bool {
	if len(c.RangeEnd) > 0 {
		for key := range s.keys {
			if within(key, c.Key, c.RangeEnd) && !compareOne(c, s.keys[key]) {
				return false
			}
		}
		return true
	}
	kv := s.keys[string(c.Key)]
	if kv == nil {
		if c.Target == pb.Compare_VALUE {
			return false // as etcd: a missing key has no value
		}
		kv = &mvccpb.KeyValue{}
	}
	return compareOne(c, kv)
}

func compareOne(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	order := 0
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	}
	return order != 0
}

// transact executes a transaction on a copy: it has an effect only if all operations succeed.
func (s *state) transact(r *pb.TxnRequest) (*state, *pb.TxnResponse, error) {
	after := s.clone()
	answer := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		answer.Succeeded = answer.Succeeded && s.compare(c)
	}
	ops := r.Success
	if !answer.Succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		response := &pb.ResponseOp{}
		switch {
		case op.GetRequestRange() != nil:
			got, err := after.get(op.GetRequestRange())
			if err != nil {
				return nil, nil, err
			}
			response.Response = &pb.ResponseOp_ResponseRange{ResponseRange: got}
		case op.GetRequestPut() != nil:
			put, err := after.put(op.GetRequestPut())
			if err != nil {
				return nil, nil, err
			}
			response.Response = &pb.ResponseOp_ResponsePut{ResponsePut: put}
		case op.GetRequestDeleteRange() != nil:
			response.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: after.remove(op.GetRequestDeleteRange())}
		}
		answer.Responses = append(answer.Responses, response)
	}
	after.commit()
	answer.Header = after.header()
	return after, answer, nil
}

// commit advances the revision if there are events of the next one.
func (s *state) commit() {
	if n := len(s.events); n > 0 && s.events[n-1].revision > s.revision {
		s.revision = s.events[n-1].revision
	}
}

// revoke removes a lease and its keys.
func (s *state) revoke(id int64) error {
	l := s.leases[id]
	if l == nil {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		s.remove(&pb.DeleteRangeRequest{Key: []byte(key)})
	}
	delete(s.leases, id)
	s.commit()
	return nil
}

// after returns the events of a range from a revision on.
func (s *state) after(from int64, key, end []byte) (found []*mvccpb.Event) {
	first, _ := slices.BinarySearchFunc(s.events, from, func(e event, from int64) int { return cmp.Compare(e.revision, from) })
	for _, e := range s.events[first:] {
		if within(string(e.Kv.Key), key, end) {
			found = append(found, e.Event)
		}
	}
	return found
}

// compact discards the revisions before one. Its events are gone, too.
func (s *state) compact(revision int64) {
	s.compacted = revision
	s.events = slices.DeleteFunc(slices.Clone(s.events), func(e event) bool { return e.revision <= revision })
}

func (s *state) names(prefix string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}
