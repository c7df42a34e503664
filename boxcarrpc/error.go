package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// Code is the result of a call. The numbers are gRPC's, so that a code means the same in
// both protocols.
type Code uint32

// The codes, with gRPC's numbers and meanings.
const (
	CodeOK                 Code = 0
	CodeCanceled           Code = 1
	CodeUnknown            Code = 2
	CodeInvalidArgument    Code = 3
	CodeDeadlineExceeded   Code = 4
	CodeNotFound           Code = 5
	CodeAlreadyExists      Code = 6
	CodePermissionDenied   Code = 7
	CodeResourceExhausted  Code = 8
	CodeFailedPrecondition Code = 9
	CodeAborted            Code = 10
	CodeOutOfRange         Code = 11
	CodeUnimplemented      Code = 12
	CodeInternal           Code = 13
	CodeUnavailable        Code = 14
	CodeDataLoss           Code = 15
	CodeUnauthenticated    Code = 16
)

var codeNames = [...]string{
	"ok", "canceled", "unknown", "invalid argument", "deadline exceeded",
	"not found", "already exists", "permission denied", "resource exhausted",
	"failed precondition", "aborted", "out of range", "unimplemented",
	"internal", "unavailable", "data loss", "unauthenticated",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "code " + strconv.FormatUint(uint64(c), 10)
}

// blamesServer reports whether an answer with this code indicates a fault of the server and
// not of the request. Such an answer does not make a server trusted.
func (c Code) blamesServer() bool {
	switch c {
	case CodeUnknown, CodeUnimplemented, CodeInternal, CodeUnavailable, CodeDataLoss, CodeResourceExhausted:
		return true
	}
	return false
}

// mayBeUnprocessed reports whether an answer with this code can mean that no handler has
// started the request.
func (c Code) mayBeUnprocessed() bool {
	return c == CodeUnavailable || c == CodeResourceExhausted
}

// An Error describes a failed call.
//
// A handler returns one to choose the code and the message. The Processed field of a
// handler's error has no effect: the error may come from a call that the handler made after
// it had changed something. See [NotProcessed].
//
// Call returns one for every failure of a call that it accepted; errors.As finds it. An
// Error of CodeDeadlineExceeded matches context.DeadlineExceeded and one of CodeCanceled
// matches context.Canceled under errors.Is.
type Error struct {
	Code    Code
	Message string
	// Processed is false only when it is certain that no handler has acted on the request,
	// so that it may be sent again even if its method is not idempotent. Call sets it.
	Processed bool

	cause error
}

func (e *Error) Error() string {
	switch {
	case e.Message == "" && e.cause == nil:
		return "boxcarrpc: " + e.Code.String()
	case e.cause == nil:
		return "boxcarrpc: " + e.Code.String() + ": " + e.Message
	case e.Message == "":
		return fmt.Sprintf("boxcarrpc: %v: %v", e.Code, e.cause)
	}
	return fmt.Sprintf("boxcarrpc: %v: %s: %v", e.Code, e.Message, e.cause)
}

// Unwrap returns the cause, if it is known on this side of the connection.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the context error of the code.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case CodeDeadlineExceeded:
		return target == context.DeadlineExceeded
	case CodeCanceled:
		return target == context.Canceled
	}
	return false
}

// NotProcessed marks the error of a handler that has not acted on its request. The client
// then sends the request to another server, even if the method is not idempotent. The code
// is that of err if it is CodeResourceExhausted, and CodeUnavailable otherwise; the message
// is that of err.
//
// The mark counts only on the error that the handler itself returns. An error that wraps a
// marked one is not marked, and neither is an error of Call: a server further down the
// chain of calls cannot speak for this one.
func NotProcessed(err error) error { return &notProcessedError{err} }

type notProcessedError struct{ cause error }

func (e *notProcessedError) Error() string { return e.cause.Error() }

func (e *notProcessedError) Unwrap() error { return e.cause }

// IsNotProcessed reports whether err is a result of [NotProcessed] or a
// *budget.NoMemoryError. It ignores the errors that err wraps.
func IsNotProcessed(err error) bool {
	switch err.(type) { //nolint:errorlint // the mark of a wrapped error does not count
	case *notProcessedError, *budget.NoMemoryError:
		return true
	}
	return false
}

// CodeOf returns the code of an error of this package or of a context's error,
// CodeResourceExhausted for a *budget.NoMemoryError, CodeOK for nil, and CodeUnknown for any
// other error.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*budget.NoMemoryError](err); ok {
		return CodeResourceExhausted
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	}
	return CodeUnknown
}

// Errors of Call before the request was sent. Each has a code, which errors.As and [CodeOf]
// find.
var (
	// ErrPoolBusy: all slots of the pool are busy. Call returns it at once, so that
	// overload fails fast.
	ErrPoolBusy error = &Error{Code: CodeResourceExhausted, Message: "all slots of the pool are busy"}
	// ErrNoServer: the pool held no slot until the caller's context ended, and the error that
	// Call returns also matches the context's error; or no server can be reached: see Call.
	ErrNoServer error = &Error{Code: CodeUnavailable, Message: "no server has given the pool a slot"}
	// ErrPoolClosed: the pool is closed.
	ErrPoolClosed error = &Error{Code: CodeCanceled, Message: "the pool is closed"}
)

// Reasons why a server grants no slot. An ErrNoServer also matches one of these if the
// reason is known.
var (
	// ErrDraining: the server grants no slots until it is undrained.
	ErrDraining = errors.New("the server is draining")
	// ErrNotBoxcar: the server at the address speaks another protocol.
	ErrNotBoxcar = conn.ErrNotBoxcar
)

// ErrServerClosed is returned by Serve after Shutdown or Close.
var ErrServerClosed = errors.New("boxcarrpc: server closed")

// Reasons for the end of a connection, used in logs and as causes of errors.
var (
	// Not io.EOF, which is the regular end of a stream.
	errClosed    = errors.New("closed by the server")
	errSilent    = errors.New("peer is silent")
	errGoingAway = errors.New("peer is going away")
	errVersion   = errors.New("no version of the protocol in common")
)

// errProtocol is a well-formed frame that is not allowed in its context.
var errProtocol = errors.New("protocol error")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// commonVersion returns an error if both sides have no protocol version in common.
func commonVersion(peer wire.Hello) error {
	if min(peer.Version, wire.Version) < max(peer.OldestVersion, wire.OldestVersion) {
		return fmt.Errorf("%w: the peer speaks %d to %d, this side %d to %d",
			errVersion, peer.OldestVersion, peer.Version, wire.OldestVersion, wire.Version)
	}
	return nil
}

func tooLong(what string, n, limit int) error {
	return &Error{
		Code:      CodeResourceExhausted,
		Message:   fmt.Sprintf("%s of %d bytes, at most %d are allowed", what, n, limit),
		Processed: true,
	}
}

// contextError returns the error of a call whose context has ended.
func contextError(ctx context.Context, processed bool) error {
	return &Error{Code: CodeOf(ctx.Err()), Processed: processed, cause: context.Cause(ctx)}
}
