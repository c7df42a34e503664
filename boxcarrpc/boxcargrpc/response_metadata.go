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

// A responseMetadata is the header and the trailer that a handler sets: what
// grpc.SetHeader, grpc.SendHeader and grpc.SetTrailer work on.
type responseMetadata struct {
	method string
	// write sends a header at once; nil if that goes with the response.
	write func(boxcarrpc.Metadata) error

	mu struct {
		sync.Mutex
		header, trailer metadata.MD
		sent            bool  // the header
		over            bool  // nothing is set any more
		refused         error // what was wrong with a trailer, if nobody was told
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

// flush sends the header, if there is one that has not been sent.
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

// setTrailer is SetTrailer for those who cannot be told of an error: the call fails
// with it.
func (r *responseMetadata) setTrailer(md metadata.MD) {
	if err := r.SetTrailer(md); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.refused = cmp.Or(r.mu.refused, err)
	}
}

// end ends a call whose handler has returned err: it returns what goes with the
// answer, and the failure in Boxcar's terms. Metadata that is too large fails a
// call, and is left out of one that has failed already.
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
