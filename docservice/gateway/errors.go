package gateway

import (
	"context"
	"errors"
	"fmt"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// clientError returns the error of a call so that a sharded.Client asks other servers if
// they may answer.
func clientError(err error) error {
	switch boxcarrpc.CodeOf(err) {
	case boxcarrpc.CodeUnavailable:
		return fmt.Errorf("%w: %w", docservice.ErrUnavailable, err)
	case boxcarrpc.CodeNotFound:
		return fmt.Errorf("%w: %w", docservice.ErrNoCollection, err)
	}
	return err
}

// handlerError returns the error of a handler, nil for nil.
func handlerError(err error) error {
	var call *boxcarrpc.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, docservice.ErrUnavailable), errors.Is(err, boxcarrpc.ErrNoServer):
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: err.Error()})
	case errors.As(err, &call):
		return call
	case errors.Is(err, context.Canceled):
		return &boxcarrpc.Error{Code: boxcarrpc.CodeCanceled, Message: err.Error(), Processed: true}
	case errors.Is(err, context.DeadlineExceeded):
		return &boxcarrpc.Error{Code: boxcarrpc.CodeDeadlineExceeded, Message: err.Error(), Processed: true}
	}
	return &boxcarrpc.Error{Code: boxcarrpc.CodeInternal, Message: err.Error(), Processed: true}
}

func malformed(err error) error {
	return &boxcarrpc.Error{Code: boxcarrpc.CodeInvalidArgument, Message: fmt.Errorf("%w: %w", docservice.ErrMalformed, err).Error(), Processed: true}
}

// statusOf returns the status for the error of a document.
func statusOf(err error) docservicepb.Status {
	switch {
	case err == nil:
		return docservicepb.Status_STATUS_FOUND
	case errors.Is(err, docservice.ErrNotFound):
		return docservicepb.Status_STATUS_NOT_FOUND
	case errors.Is(err, docservice.ErrUnavailable), errors.Is(err, docservice.ErrMoved):
		return docservicepb.Status_STATUS_UNAVAILABLE
	}
	return docservicepb.Status_STATUS_ERROR
}
