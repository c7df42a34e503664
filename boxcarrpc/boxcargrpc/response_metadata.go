package boxcargrpc

import (
	"cmp"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// A responseMetadata has the header and the trailer of a handler. It implements
// grpc.ServerTransportStream.
type responseMetadata struct {
	method string
	// write sends a header at once. It is nil if the header is part of the response.
	write func(boxcarrpc.Metadata) error

	mu struct {
		sync.Mutex
		header, trailer metadata.MD
		sent            bool  // the header was sent
		over            bool  // the call has ended
		refused         error // invalid trailer for which no method could return an error
	}
}

var errHeaderSent = status.Error(codes.Internal, "the header has been sent already")

func (r *responseMetadata) Method() string { return r.method }

func (r *responseMetadata) SetHeader(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setHeaderLocked(md)
}

func (r *responseMetadata) setHeaderLocked(md metadata.MD) error {
	if err := validate(md); err != nil {
		return err
	}
	if r.mu.sent || r.mu.over {
		return errHeaderSent
	}
	if md.Len() > 0 {
		r.mu.header = metadata.Join(r.mu.header, md)
	}
	return nil
}

func (r *responseMetadata) SendHeader(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.setHeaderLocked(md); err != nil {
		return err
	}
	return r.sendLocked()
}

// sendLocked sends the header.
func (r *responseMetadata) sendLocked() error {
	r.mu.sent = true
	if r.write == nil {
		return nil
	}
	return StatusError(r.write(appendPairs(nil, r.mu.header)))
}

// flush sends the header if there is one and it has not been sent.
func (r *responseMetadata) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.sent || len(r.mu.header) == 0 {
		return nil
	}
	return r.sendLocked()
}

func (r *responseMetadata) SetTrailer(md metadata.MD) error {
	if err := validate(md); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.over {
		return status.Error(codes.Internal, "the call is over")
	}
	if md.Len() > 0 {
		r.mu.trailer = metadata.Join(r.mu.trailer, md)
	}
	return nil
}

// setTrailer is SetTrailer for callers that cannot receive an error: an invalid trailer
// fails the call.
func (r *responseMetadata) setTrailer(md metadata.MD) {
	if err := r.SetTrailer(md); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.refused = cmp.Or(r.mu.refused, err)
	}
}

// end ends a call whose handler has returned err. It returns the metadata of the
// response and the error in Boxcar's terms. Metadata that is too large fails a
// successful call, and is omitted from a failed one.
func (r *responseMetadata) end(err error) (header, trailer boxcarrpc.Metadata, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.over = true
	if err = cmp.Or(err, r.mu.refused); err != nil {
		details, e := answer(err)
		failure = e
		if details != nil {
			r.mu.trailer = metadata.Join(r.mu.trailer) // a copy
			r.mu.trailer.Set(detailsKey, string(details))
		}
	}
	if r.write == nil {
		header = appendPairs(nil, r.mu.header)
	}
	trailer = appendPairs(nil, r.mu.trailer)
	if n := len(header) + len(trailer); n > boxcarrpc.MaxMetadataBytes {
		header, trailer = nil, nil
		if failure == nil {
			failure = &boxcarrpc.Error{
				Code:      boxcarrpc.CodeInternal,
				Message:   fmt.Sprintf("the response's metadata has %d bytes, at most %d are allowed", n, boxcarrpc.MaxMetadataBytes),
				Processed: true,
			}
		}
	}
	return header, trailer, failure
}
