// Package boxcarrpc is an RPC library in which clients balance the load themselves:
// servers number their slots, and a client sends each request on the lowest-numbered free
// slot that it holds.
//
// It implements Indeed's Boxcar ("Boxcar: A self-balancing distributed services
// protocol"). There is no load balancer between client and server, no load measurement and
// no configuration of shares.
//
// # Use
//
//	serverTLS, err := credentials.ServerTLS(credentials.Files{Certificate: "be.crt", Key: "be.key", CA: "ca.crt"}, nil)
//	server := boxcarrpc.NewServer(handler, &boxcarrpc.ServerOptions{TLS: serverTLS})
//	go server.Serve(listener)
//
//	clientTLS, err := credentials.ClientTLS(credentials.Files{Certificate: "fe.crt", Key: "fe.key", CA: "ca.crt"}, nil)
//	pool, err := boxcarrpc.NewPool(discovery.Static("be-0.search:7070", "be-1.search:7070"), &boxcarrpc.PoolOptions{
//		TLS:     clientTLS,
//		Size:    60, // peak rate x p99 x 1.5
//		Methods: map[string]boxcarrpc.Method{"/search.Jobs/Find": {Idempotent: true}},
//	})
//	response, err := pool.Call(ctx, "/search.Jobs/Find", request, nil)
//
// Within one host the options may be nil. For plain text between hosts set Insecure on
// both sides.
//
// # Concurrency
//
// Server and Pool are safe for concurrent use. A server runs at most one handler for each
// granted slot. A handler starts on the goroutine that reads its connection; if it takes
// long, another goroutine reads on. Any number of goroutines may use Call; a pool serves as
// many at a time as it has slots and refuses the others at once.
//
// # Slots
//
// A slot is a lane of a connection. A connection carries many lanes, each lane one request
// at a time. A pool with more than eight lanes on a server has two connections to it, and up to
// one for each four lanes while its responses are large: see core.Connections. A server gives a
// new lane its lowest free number, which no other lane has at the same time. A client holds a
// ladder of Size slots and uses the free one with the lowest number, among equals the one that
// was idle longest. In the background it asks random servers for numbers lower than its highest:
//
//	ladder of a client          slot  0  0  0  1  1  2
//	                          server  c  a  b  c  a  b
//	                                  ^ the next request   ^ replaced first
//
// The slots of a slow server are busy for longer, so more requests go to other servers; the
// slots of a dead server are gone at once. If a server has twice the
// discovery.Server.Weight of another, two of its numbers count as one.
//
// A slot number measures how many slots were leased, not load. Therefore each response
// reports the other requests in flight on the server, and a slot whose server had none, or
// fewer than the average, is used first for 200 ms. With an average below 1/64 the order
// is that of the numbers: with n calls in flight exactly the n lowest slots are busy.
//
// # Many processors
//
// A connection has one reader and one writer at a time. With 64 callers and responses of
// 1 KB a reader takes a quarter of the client's processor time of a call, and a writer a
// fifth. So one connection keeps about four processors of a client busy. A client with P
// processors needs P/4 connections: it has them if it holds more than eight slots on each
// of P/8 servers, else set LanesPerConn to 4*Size/P. A call takes the lock of its pool twice,
// together for 130 ns on two processors. For more than some millions of calls a second use
// several pools.
//
// # Subsets
//
// With PoolOptions.SubsetSize a client uses that many servers, which package subset chooses
// by the numbers of both sides, evenly over all clients. When the set changes, the pool
// connects to new servers first. A server that is down keeps its place; if the whole subset
// is down, or full while slots are missing, the pool borrows others.
//
// # The protocol
//
// Frames of at most 32 KiB with a checksum; docs/format/boxcar.md specifies each.
//
//	client                                     server
//	  HELLO  version, features, limits   ->
//	                                     <-    HELLO  version, features, limits
//	  LEASE   lane 0, below 5            ->
//	                                     <-    GRANT  lane 0, slot 2     (or DENY: lowest is 7)
//	  REQUEST lane 0, 1, deadline, data  ->
//	                                     <-    RESPONSE lane 0, 1, code, lowest free slot, data
//	  REQUEST lane 0, 2, deadline, data  ->
//	  CANCEL  lane 0, 2                  ->
//	                                     <-    RESPONSE lane 0, 2, canceled
//	  RELEASE lane 0                     ->
//
// # Streams
//
// A stream is a call with any number of messages in either direction:
//
//	stream, err := pool.Stream(ctx, "/search.Jobs/Watch", nil)
//	for err == nil {
//		message, err = stream.Receive(message[:0])
//	}
//
// On the server, ServerOptions.StreamHandler serves streams. They share connections with
// calls but take no slot: a watch that lasts for hours would occupy the lowest. In each
// direction a stream may have 256 KiB in flight that its receiver has not taken. There is
// no such limit for a connection, so a stream that is not read blocks only its own sender.
// If something is sent on a stream, the failure of its server is detected within one and a
// half SilenceTimeouts, otherwise by keep-alives.
//
// # Draining
//
// Server.Shutdown stops a server gracefully; Server.Drain empties a server that keeps
// running. Both inform the clients, which use other servers while requests in flight
// finish. After Undrain or a restart the clients return within half a second.
//
// # Metadata and interceptors
//
// Key-value pairs can be sent with a request and its response, and with the opening and
// the status of a stream: see [CallInfo], [MetadataOf] and [SetHeader]. Interceptors wrap
// all calls and streams, for traces and metrics: see [Caller] and [StreamOpener].
//
// # Priorities
//
// Calls with a context of [WithBatch] are the first that an overloaded server refuses: see
// [budget.Admission].
//
// # Security
//
// Within a host, connections are plain text. Between hosts they use TLS, or plain text if
// Insecure is set. Package credentials reads certificates and tokens from files, and reads
// them again when they change. A client authenticates once per connection, by a
// certificate or a token, which the server verifies again while the connection is open: see
// package session. Handlers find its identity in [Peer], admission limits its rate,
// and ServerOptions.Authorize decides by method. See docs/security.md.
//
// # Built-in methods
//
// Every server answers [MethodBoard] with its slots and [MethodEcho] with the request, and
// is drained by [MethodDrain]. Pool.Handler shows the ladder of a client.
//
// # Guarantees
//
//   - Every call ends, within its deadline, with the handler's response or with an
//     error that says whether the request may have been processed.
//   - A request is retried, or hedged to a second server, only if it certainly was not
//     processed or its method is idempotent, and within a limit: see
//     PoolOptions.RetryRatio.
//   - Call does not use the request or dst after it has returned.
//   - A corrupted frame ends its connection; its content is not used.
//   - A peer that sends invalid frames, or sends or reads nothing, loses its own
//     connection only, and takes bounded memory: a [budget.Budget] counts the bytes held for
//     peers until they are sent, and disconnects the slowest peers when it is exceeded.
//   - One client has at most ServerOptions.ClientShare of the connections, slots and
//     streams of a server, and an eighth of its budget.
//
// # Faults
//
// A connection that fails, or is silent for a second although an answer is outstanding,
// loses its slots, and its server is quarantined. A panic of a handler costs the slot.
// Errors, deadlines and refusals cost none. A server that refuses requests or is silent for
// a moment ranks last for a while, and one that fails requests while others do not is
// ejected until a request or a health check succeeds. docs/operating.md has the
// limits and pauses, performance.md the cost of calls.
//
// # Limits
//
// Requests of 17 MiB, responses of 32 MiB, method names of 1 KiB, error messages of 4 KiB,
// metadata of 16 KiB, 65,536 lanes and as many streams on a connection, 16 million slots
// on a server. An idle connection takes 8 KB of memory in a server, 21 KB with TLS. The
// kernel buffers about 128 KiB of received bytes, so a connection delivers at most that
// much per round trip.
//
// # Reading the source
//
// The rules are state machines in package core, without I/O; this package adds sockets,
// timers and locks. It owns pools, servers and streams, and knows neither documents nor gRPC,
// Prometheus or tracing. The path of a call:
//
//	Pool.Call                                   Handler
//	  |  ^                                        ^  |
//	pool_call.go     one attempt                server_call.go  the lane, its request
//	pool_slots.go    the best free slot           ^  |          and response
//	transport.go     the lane and its request     |  |
//	                 on the connection          server_conn.go  the connection
//	client_wait.go   which goroutine reads,     server_turn.go  which goroutine reads,
//	  |  ^           and waits                    ^  |          and runs quick handlers
//	internal/conn    batches of frames, TCP or TLS
//	  |  ^                                        ^  |
//	  |  +----------------------------------------|--+
//	  +-------------------------------------------+
//
// A pool has three parts: calls (pool_call.go, pool_hedge.go) takes slots for requests and
// returns them; slots has the ladder and the calls that wait for a slot; members
// (pool_members.go, pool_conns.go, dial.go) follows the set of servers, connects and
// requests slots. Streams are in stream.go, stream_client.go and stream_server.go.
// internal/callpath lists the functions of a call. The packages, where an arrow is an import:
//
//	boxcargrpc   boxcarprom   boxcarotel   credentials    gRPC, Prometheus,
//	     |            |            |            |         OpenTelemetry, files
//	     +------------+-----+------+------------+
//	                        v
//	                    boxcarrpc -----> discovery       the addresses of the servers
//	                     |     |  -----> budget          memory and processor time of clients
//	                     |     |  -----> session         credentials in use
//	                     |     |  -----> internal/wire   the encoding of frames
//	                     |     |  -----> internal/conn   batches, sockets
//	                     |     |  -----> internal/turns  who reads and runs handlers
//	                     |     |  -----> internal/serverset, page, faultlog
//	                     v     v
//	                      core ------> subset            slots, ladder, lease seeker,
//	                                                     liveness, health; subsets
package boxcarrpc
