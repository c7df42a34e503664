// Package turns decides which goroutine of a server reads a connection and runs its handlers.
//
// The leader of a connection has its [Turn]: it reads requests and runs quick handlers itself,
// between Begin and End. If a handler takes long, the [Monitor] makes another of the [Workers]
// the leader, a follower, so that a slow handler does not delay the requests behind it. The
// former leader learns it from End and becomes an ordinary worker.
//
// All types may be used concurrently, except that only the leader calls Begin and End. The
// package knows neither frames nor connections.
package turns
