package etcd

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Server is an etcd.
type Server struct {
	mu struct {
		sync.Mutex
		*state
		grpc    *grpc.Server   // nil: stopped
		streams []*watchStream // oldest first
	}
}

// service is the API of a Server.
type service struct {
	*Server
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
}

// Snapshot is a state of a Server.
type Snapshot struct{ state *state }

// New returns a Server without keys.
func New() *Server {
	s := &Server{}
	s.mu.state = newState()
	return s
}

// minPing is the time between two pings of a client.
const minPing = 5 * time.Second

// Serve answers the connections of a listener until Stop, and returns grpc.ErrServerStopped.
func (s *Server) Serve(l net.Listener) error {
	// As etcd: a client may ping every 5 s while it has a call in progress.
	g := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing}))
	api := &service{Server: s}
	pb.RegisterKVServer(g, api)
	pb.RegisterWatchServer(g, api)
	pb.RegisterLeaseServer(g, api)
	pb.RegisterMaintenanceServer(g, api)
	s.mu.Lock()
	s.mu.grpc = g
	for _, id := range slices.Sorted(maps.Keys(s.mu.leases)) { // a new leader extends all leases
		s.renew(id, s.mu.leases[id])
	}
	s.mu.Unlock()
	return g.Serve(l)
}

// Stop ends all connections. Leases do not expire until Serve.
func (s *Server) Stop() {
	s.mu.Lock()
	g := s.mu.grpc
	s.mu.grpc = nil
	s.mu.Unlock()
	if g != nil {
		g.Stop()
	}
}

// Compact implements pb.KVServer: it discards the revisions before one.
func (s *service) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Revision > s.mu.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case r.Revision <= s.mu.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	s.mu.compact(r.Revision)
	return &pb.CompactionResponse{Header: s.mu.header()}, nil
}

// Compact discards all revisions before the present one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.compact(s.mu.revision)
}

// Backup returns the present state.
func (s *Server) Backup() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.mu.clone()}
}

// Restore replaces the state of a stopped Server. The zero Snapshot is empty.
func (s *Server) Restore(from Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.state == nil {
		from.state = newState()
	}
	s.mu.state = from.state.clone()
}

// Keys returns the keys with a prefix.
func (s *Server) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.names(prefix)
}

// Range implements pb.KVServer.
func (s *service) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.get(r)
}

// Put implements pb.KVServer.
func (s *service) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	answer, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}})
	if err != nil {
		return nil, err
	}
	put := answer.Responses[0].GetResponsePut()
	put.Header = answer.Header
	return put, nil
}

// DeleteRange implements pb.KVServer.
func (s *service) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	answer, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}})
	if err != nil {
		return nil, err
	}
	removed := answer.Responses[0].GetResponseDeleteRange()
	removed.Header = answer.Header
	return removed, nil
}

// Txn implements pb.KVServer.
func (s *service) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after, answer, err := s.mu.transact(r)
	if err != nil {
		return nil, err
	}
	s.mu.state = after
	s.notify()
	return answer, nil
}

// notify wakes the watches.
func (s *Server) notify() {
	for _, w := range s.mu.streams {
		w.notify()
	}
}

// LeaseGrant implements pb.LeaseServer.
func (s *service) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.ID
	if id == 0 {
		s.mu.lastLease++
		id = s.mu.lastLease
	}
	if s.mu.leases[id] != nil {
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	l := &lease{ttl: r.TTL, keys: map[string]bool{}}
	s.mu.leases[id] = l
	s.renew(id, l)
	return &pb.LeaseGrantResponse{Header: s.mu.header(), ID: id, TTL: r.TTL}, nil
}

// renew starts the time to live of a lease again.
func (s *Server) renew(id int64, l *lease) {
	l.granted++
	granted, ttl := l.granted, time.Duration(l.ttl)*time.Second
	l.expires = time.Now().Add(ttl)
	time.AfterFunc(ttl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l := s.mu.leases[id]; l != nil && l.granted == granted && s.mu.grpc != nil {
			if s.mu.revoke(id) == nil {
				s.notify()
			}
		}
	})
}

// LeaseRevoke implements pb.LeaseServer.
func (s *service) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mu.revoke(r.ID); err != nil {
		return nil, err
	}
	s.notify()
	return &pb.LeaseRevokeResponse{Header: s.mu.header()}, nil
}

// LeaseKeepAlive implements pb.LeaseServer.
func (s *service) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		answer := &pb.LeaseKeepAliveResponse{Header: s.mu.header(), ID: r.ID}
		if l := s.mu.leases[r.ID]; l != nil { // else the TTL is 0
			s.renew(r.ID, l)
			answer.TTL = l.ttl
		}
		s.mu.Unlock()
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive implements pb.LeaseServer.
func (s *service) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &pb.LeaseTimeToLiveResponse{Header: s.mu.header(), ID: r.ID, TTL: -1}
	if l := s.mu.leases[r.ID]; l != nil {
		answer.TTL, answer.GrantedTTL = int64(time.Until(l.expires)/time.Second), l.ttl
	}
	return answer, nil
}

// Status implements pb.MaintenanceServer.
func (s *service) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.StatusResponse{Header: s.mu.header(), Version: "3.6.0", Leader: 1}, nil
}

// watchStream is a stream of watches.
type watchStream struct {
	server *Server
	wake   chan struct{}
	send   sync.Mutex // of responses

	mu struct {
		sync.Mutex
		watches []*watch
		last    int64
	}
}

// watch is a watch of a stream.
type watch struct {
	id       int64
	key, end []byte
	next     int64 // revision
	prevKV   bool
	filters  []pb.WatchCreateRequest_FilterType
}

func (w *watchStream) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch implements pb.WatchServer.
func (s *service) Watch(stream pb.Watch_WatchServer) error {
	w := &watchStream{server: s.Server, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.mu.streams = append(s.mu.streams, w)
	s.mu.Unlock()
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer func() {
		s.mu.Lock()
		s.mu.streams = slices.DeleteFunc(s.mu.streams, func(other *watchStream) bool { return other == w })
		s.mu.Unlock()
	}()
	sending.Go(func() {
		for {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
			if w.deliver(stream) != nil {
				return
			}
		}
	})
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.request(stream, r); err != nil {
			return err
		}
	}
}

// request executes a request of the client.
func (w *watchStream) request(stream pb.Watch_WatchServer, r *pb.WatchRequest) error {
	s := w.server
	s.mu.Lock()
	header, compacted := s.mu.header(), s.mu.compacted
	s.mu.Unlock()
	w.mu.Lock()
	answer := &pb.WatchResponse{Header: header, WatchId: -1}
	switch {
	case r.GetCreateRequest() != nil:
		c := r.GetCreateRequest()
		w.mu.last++
		answer.WatchId, answer.Created = w.mu.last, true
		next := c.StartRevision
		if next == 0 {
			next = header.Revision + 1
		}
		if next <= compacted {
			w.mu.Unlock()
			w.send.Lock()
			defer w.send.Unlock()
			if err := stream.Send(answer); err != nil {
				return err
			}
			return stream.Send(&pb.WatchResponse{Header: header, WatchId: answer.WatchId, Canceled: true, CompactRevision: compacted})
		}
		w.mu.watches = append(w.mu.watches, &watch{id: w.mu.last, key: c.Key, end: c.RangeEnd, next: next, prevKV: c.PrevKv, filters: c.Filters})
	case r.GetCancelRequest() != nil:
		answer.WatchId, answer.Canceled = r.GetCancelRequest().WatchId, true
		w.mu.watches = slices.DeleteFunc(w.mu.watches, func(o *watch) bool { return o.id == answer.WatchId })
	}
	w.mu.Unlock()
	w.send.Lock()
	err := stream.Send(answer)
	w.send.Unlock()
	w.notify() // there may be events since the start
	return err
}

// deliver sends the events that the watches have not got.
func (w *watchStream) deliver(stream pb.Watch_WatchServer) error {
	w.send.Lock() // a watch is created before its events
	defer w.send.Unlock()
	w.mu.Lock()
	watches := slices.Clone(w.mu.watches)
	w.mu.Unlock()
	for _, one := range watches {
		s := w.server
		s.mu.Lock()
		header, compacted := s.mu.header(), s.mu.compacted
		events := s.mu.after(one.next, one.key, one.end)
		s.mu.Unlock()
		answer := &pb.WatchResponse{Header: header, WatchId: one.id}
		if one.next <= compacted && one.next <= header.Revision {
			answer.Canceled, answer.CompactRevision = true, compacted
			w.mu.Lock()
			w.mu.watches = slices.DeleteFunc(w.mu.watches, func(o *watch) bool { return o == one })
			w.mu.Unlock()
		} else {
			one.next = header.Revision + 1
			for _, e := range events {
				if !one.drops(e) {
					answer.Events = append(answer.Events, one.event(e))
				}
			}
		}
		if len(answer.Events) == 0 && !answer.Canceled {
			continue
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) drops(e *mvccpb.Event) bool {
	return e.Type == mvccpb.PUT && slices.Contains(w.filters, pb.WatchCreateRequest_NOPUT) ||
		e.Type == mvccpb.DELETE && slices.Contains(w.filters, pb.WatchCreateRequest_NODELETE)
}

func (w *watch) event(e *mvccpb.Event) *mvccpb.Event {
	if w.prevKV {
		return e
	}
	return &mvccpb.Event{Type: e.Type, Kv: e.Kv}
}
