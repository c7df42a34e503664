package boxcargrpc

import (
	"context"
	"errors"
	"io"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
)

// detailsKey is the trailer key of a status with details, as in gRPC.
const detailsKey = "grpc-status-details-bin"

// A callError is the error of a call. For package status it is a status; for errors.As
// and errors.Is it is also Boxcar's error. It never matches io.EOF, which is the
// successful end of a stream for generated code.
type callError struct {
	status *status.Status
	cause  error
}

func (e *callError) Error() string              { return e.status.String() }
func (e *callError) GRPCStatus() *status.Status { return e.status }
func (e *callError) Is(target error) bool       { return target != io.EOF && errors.Is(e.cause, target) }
func (e *callError) As(target any) bool         { return errors.As(e.cause, target) }

// callFailed returns the error of a call that failed with err and the given trailer.
func callFailed(ctx context.Context, err error, trailer boxcarrpc.Metadata) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Code(boxcarrpc.CodeOf(err))
	if errors.Is(err, boxcarrpc.ErrNoServer) && errors.Is(ctx.Err(), context.Canceled) {
		code = codes.Canceled
	}
	s := status.New(code, messageOf(err))
	if details, ok := trailer.Get(detailsKey); ok {
		var p spb.Status
		if proto.Unmarshal([]byte(details), &p) == nil && codes.Code(p.GetCode()) == code {
			s = status.FromProto(&p)
		}
	}
	return &callError{s, err}
}

// messageOf returns the text of a Boxcar error without its code.
func messageOf(err error) string {
	e, ok := err.(*boxcarrpc.Error) //nolint:errorlint // a wrapper has its own text
	if !ok {
		return err.Error()
	}
	switch cause := e.Unwrap(); {
	case cause == nil:
		return e.Message
	case e.Message == "":
		return cause.Error()
	default:
		return e.Message + ": " + cause.Error()
	}
}

// NotProcessed marks the error of a handler that has not acted on its request, as
// [boxcarrpc.NotProcessed] does. The client's pool then retries on another server,
// whatever the method. The status is that of err, with the code RESOURCE_EXHAUSTED if err
// has it, otherwise UNAVAILABLE. The code alone is not sufficient, because it may come
// from a call that the handler made. The mark has no effect over gRPC, or if the error
// is wrapped.
func NotProcessed(err error) error { return &notProcessedError{err} }

type notProcessedError struct{ error }

func (e *notProcessedError) Unwrap() error              { return e.error }
func (e *notProcessedError) GRPCStatus() *status.Status { return statusOf(e.error) }

// StatusError converts the error of a boxcarrpc.Handler for a gRPC handler. A boxcarrpc
// *Error keeps its code and message, and a result of [boxcarrpc.NotProcessed] becomes
// one of [NotProcessed]. It returns nil for nil.
func StatusError(err error) error {
	var e *boxcarrpc.Error
	var noMemory *budget.NoMemoryError
	switch {
	case boxcarrpc.IsNotProcessed(err) && errors.As(err, &noMemory):
		return NotProcessed(&callError{statusOf(noMemory), err})
	case boxcarrpc.IsNotProcessed(err):
		return NotProcessed(StatusError(errors.Unwrap(err)))
	case errors.As(err, &e):
		return &callError{statusOf(err), err}
	}
	return err
}

// statusOf returns the status of a handler's error, as in gRPC.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.New(codes.Code(boxcarrpc.CodeOf(err)), messageOf(err))
}

// answer converts a handler's error to a Boxcar error. details is the encoded status if
// it has details, otherwise nil.
func answer(err error) (details []byte, failure error) {
	s := statusOf(err)
	failure = &boxcarrpc.Error{Code: boxcarrpc.Code(s.Code()), Message: s.Message(), Processed: true}
	if _, ok := err.(*notProcessedError); ok { //nolint:errorlint // the mark of a wrapped error does not count
		failure = boxcarrpc.NotProcessed(failure)
	}
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			details = b
		}
	}
	return details, failure
}
