// Package boxcarrpc is an RPC in which clients balance the load by themselves:
// servers number their slots, and every request goes out on the lowest-numbered
// free slot that its client holds.
//
// It follows Indeed's Boxcar ("Boxcar: A self-balancing distributed services
// protocol"). There is no balancer between client and server, no measurement of
// load and no configuration of shares.
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
// Server and Pool are safe for concurrent use. A server runs handlers
// concurrently, at most one for each slot that it has given out. Call may be
// used by any number of goroutines; as many at a time as the pool has slots are
// served and the rest are refused at once. A handler begins on the goroutine that
// reads its connection, and may take its time: then another goroutine reads on.
// Handlers that wait for memory can have it fetched for all requests that have arrived
// together: see ServerOptions.Prefetch.
//
// # Slots
//
// A slot is a lane of a connection: connections carry many lanes, each lane one
// request at a time. A server gives a new lane its lowest free number; no number
// is held twice at once. A client holds a ladder of Size slots, always uses the
// free one with the lowest number, among equals the one idle longest, and in the
// background asks servers picked at random for lower numbers than its highest:
//
//	ladder of a client          slot  0  0  0  1  1  2
//	                          server  c  a  b  c  a  b
//	                                  ^ the next request   ^ replaced first
//
// With n calls under way exactly the n lowest slots are busy. A slow server's
// slots are busy for longer, so that more requests find their way to others; a
// dead server's slots are gone at once. A slot number measures how many slots
// were leased, not load. Where a server has twice the discovery.Server.Weight of
// another, two of its numbers count as one.
//
// # Subsets
//
// A client need not use all servers. With PoolOptions.SubsetSize it uses as many,
// which package subset chooses by the numbers of both sides, evenly over all
// clients. When the set changes the pool connects to new servers first, and leaves
// an old one when a new one has answered, or after 30 s. A server that is merely
// down keeps its place; if the whole subset is, the pool borrows others.
//
// # The protocol
//
// Frames of at most 32 KiB with a checksum; docs/format/boxcar.md draws each.
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
// and on the server ServerOptions.StreamHandler. Streams share connections with
// calls, but take no slot: a watch that lasts for hours would sit on the lowest.
// They have a limit of their own and count as requests in flight. Each may have
// 256 KiB under way in each direction that its receiver has not taken; there is
// no such limit for a connection, so that one which is not read stops its own
// sender and nobody else. A stream that is silent is no fault. That its server is
// gone is found after one and a half SilenceTimeouts if something is sent on it, and
// else by the keep-alives.
//
// # Draining
//
// Server.Shutdown ends a server, Server.Drain empties it for the time being: both
// tell the clients, which give back their slots as they become idle and go
// elsewhere, while requests in flight finish. Undrain, or a server that begins
// anew, has them come back, each at a random moment within half a second.
//
// # Metadata
//
// Pairs of keys and values can go with a request and its response, and with the
// ends of a stream: see [CallInfo], [MetadataOf] and [SetHeader]. What has none costs
// nothing for it. A handler's context also knows who asks: see [PeerOf].
//
// # Interceptors
//
// What concerns all methods, as traces and metrics, goes around them: see [Caller],
// [StreamOpener] and the options named Interceptors. What has none pays nothing.
//
// # Security
//
// Within a host connections are plain text. With others they are TLS, or plain text
// where Insecure asks for it. Package credentials keeps certificates and tokens in
// files, which are read again when they change. A client proves who it is once for
// each connection, by a certificate or a token; handlers find that in [Peer], rates
// of admission go by it, and ServerOptions.Authorize decides by method. See
// docs/security.md.
//
// # Tools
//
// Every server answers [MethodBoard] with its slots and [MethodEcho] with the
// request, and is drained by [MethodDrain]; Pool.Handler shows a client's ladder.
//
// # Guarantees
//
//   - Every call ends, within its deadline, with the handler's answer or with an
//     error that says whether the request may have been processed.
//   - A request is sent again, or to a second server beside a slow one, only if it
//     certainly was not processed, or its method was declared idempotent; and no
//     oftener than a share of the calls: see PoolOptions.RetryRatio.
//   - Nothing reads the request or writes to dst once Call has returned.
//   - A frame that was changed on its way ends its connection; its content is
//     not used.
//   - A connection that speaks nonsense, or nothing, or does not read, costs
//     itself and bounded memory: a [Budget] counts the bytes that peers hold until they
//     are sent, and disconnects the slowest peers when it is exceeded.
//   - One client has at most ServerOptions.ClientShare of the connections, slots and
//     streams of a server, and an eighth of its Budget.
//
// # What costs a slot
//
// A broken connection, or one that is silent for a second, costs all of its slots,
// and its server gets no new questions for a pause that doubles from 100 ms to 5 s.
// A handler's panic costs the slot. Errors, deadlines and refusals cost none: a
// server that refuses ("not processed"), or fails a stream before it has sent
// anything, ranks last for a pause that doubles from 20 ms to 2 s, and a cancelled
// lane is busy until the server has acknowledged.
//
// A server that fails requests although others do not is left out: after six
// failures in a row, or when more than half of its requests fail and twice as many
// as of the others on average, its slots rank last and it is asked for no others,
// for a pause that doubles from 1 s to a minute. Then one request finds out, or a
// check where PoolOptions.HealthMethod names one. It keeps its slots, no more than a
// third of the servers are left out at once, and where all fail alike none is.
// Errors that blame the server count (unknown, unimplemented, internal, unavailable,
// data loss), panics, and answers that are not there at the caller's deadline.
//
// Time in which the client itself was held up, as by a limit of its processor time,
// does not count as silence: it asks, and waits for the answer.
//
// A connection that owes an answer and brings no byte for 50 ms, or for four times
// what 99 % of its answers took of late, is pinged, and its server ranks last until
// it is heard.
//
// # Limits
//
// Requests of 17 MiB, responses of 32 MiB, methods of 1 KiB, messages of errors of
// 4 KiB, metadata of 16 KiB, 65,536 lanes and as many streams on a connection,
// 16 million slots on a server; the options bound connections, lanes and buffered
// bytes below that. An idle connection costs a server 8 KB of memory, 21 KB
// with TLS. The kernel holds about 128 KiB of what a connection has received, so
// that a connection brings at most that much in a round trip.
//
// docs/boxcar-speed.md has what calls cost, beside other ways to make them.
//
// # Reading the source
//
// The rules are state machines in package core, without I/O; this package is a
// shell of sockets, timers and locks around them. The way of a call:
//
//	Pool.Call                                   Handler
//	  |  ^                                        ^  |
//	pool_call.go     one attempt                server_call.go  the lane, its request
//	pool_acquire.go  the best free slot           ^  |          and answer
//	client_lane.go   the lane and its request     |  |
//	transport.go     the connection             server_conn.go  the connection
//	read_turn.go     who reads it               server_turn.go  who reads it, and runs
//	  |  ^                                        ^  |          quick handlers;
//	  |  ^                                        ^  |          server_ahead.go
//	outbox.go, write_turn.go: who writes        the same on this side
//	frame_reader.go: what was read                ^  |
//	  |  ^                                        |  |
//	  |  +----------------------------------------|--+
//	  +-------------------------------------------+
//	     TCP, or TLS above it (tlsBatchConn.go); the frames are internal/wire's
//
// The other files named pool_ are what a pool does beside: leasing (pool_rover.go),
// retries and hedges, silence, health, draining, the set of servers. Streams are in
// stream.go and the files of that name. The packages, an arrow being an import:
//
//	boxcargrpc   boxcarprom   boxcarotel   credentials    doors: gRPC, Prometheus,
//	     |            |            |            |         OpenTelemetry, files
//	     +------------+-----+------+------------+
//	                        v
//	                    boxcarrpc -----> discovery       who the servers are
//	                        |   -------> internal/wire   the bytes
//	                        v
//	                      core ------> subset            slots, ladder, lease seeker,
//	                                                     liveness, health; subsets
package boxcarrpc
