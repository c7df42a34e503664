package collection

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/queue/codec"
)

// MaxBatchBytes is the maximum size of the answers of a batch.
const MaxBatchBytes = docservice.MaxReplyBytes - wire.MaxLeftOutBytes

// A Router answers requests for documents: a Service, or one that passes on what others
// hold. Collection and ids are valid until a method returns, and it retains neither. Errors
// of a request as a whole match docservice.ErrNoCollection, ErrNotPermitted,
// docservice.ErrMalformed, docservice.ErrUnavailable, or are those of budget.Reserve.
type Router interface {
	// Get appends the document with the id to dst, in a codec of accept in its stored form.
	// On any error it returns dst unchanged: docservice.ErrNotFound, ErrUnavailable, ErrMoved
	// or ErrBadID, or that of the request.
	Get(ctx context.Context, collection, id []byte, accept codec.Set, dst []byte) (_ []byte, asStored bool, err error)
	// GetMany appends the answers for the first ids to dst, in their order, with a Receiver:
	// as many as fit into MaxBatchBytes, and at least one. On an error it returns dst
	// unchanged.
	GetMany(ctx context.Context, collection []byte, ids [][]byte, accept codec.Set, dst []byte, to Receiver) (_ []byte, answered int, err error)
	// Dictionary returns the dictionary with the hash, docservice.ErrUnavailable if it is not
	// found.
	Dictionary(ctx context.Context, collection []byte, hash codec.DictionaryHash) ([]byte, error)
	// Scan is Collection.Scan that passes documents in a codec of accept in their stored form.
	Scan(ctx context.Context, collection []byte, o docservice.ScanOptions, accept codec.Set, fn func(id []byte, answer Answer) error) error
	// Stats describes a collection, or all of this process if the name is empty.
	Stats(ctx context.Context, collection string) ([]*docservicepb.CollectionStats, error)
}

// Handle is a boxcarrpc.Handler.
func (s *Service) Handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	return Handle(ctx, s, method, request, dst)
}

// Handle answers a call of docstore.v1.Documents with a Router: it appends the encoded
// response to dst. Its errors are *boxcarrpc.Error; on error it returns dst unchanged.
func Handle(ctx context.Context, r Router, method string, request, dst []byte) (response []byte, err error) {
	switch method {
	case docservice.MethodGet:
		response, err = handleGet(ctx, r, request, dst)
	case docservice.MethodBatchGet:
		response, err = handleBatchGet(ctx, r, request, dst)
	case docservice.MethodDictionary:
		response, err = handleDictionary(ctx, r, request, dst)
	case docservice.MethodScan:
		response, err = handleScan(ctx, r, request, dst)
	case docservice.MethodStats:
		response, err = handleStats(ctx, r, request, dst)
	default:
		err = &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Message: "no method " + method, Processed: true}
	}
	if err != nil {
		return dst, CallError(err)
	}
	return response, nil
}

func handleGet(ctx context.Context, r Router, request, dst []byte) ([]byte, error) {
	asked, id, err := wire.DecodeGetRequest(request)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	response, asStored, err := r.Get(ctx, asked.Collection, id, asked.Accept, wire.BeginFound(dst))
	if err == nil {
		return wire.EndFound(response, start, asStored), nil
	}
	switch status := (Answer{Err: err}).Status(); {
	case status == docservicepb.Status_STATUS_NOT_FOUND, status == docservicepb.Status_STATUS_MOVED, errors.Is(err, ErrShardAbsent):
		return wire.AppendStatus(dst, status), nil
	}
	return dst, err
}

// batchCall holds the buffers of a BatchGet.
type batchCall struct {
	ids      [][]byte
	response batchResponse
}

var batchCalls = sync.Pool{New: func() any { return new(batchCall) }}

func handleBatchGet(ctx context.Context, r Router, request, dst []byte) ([]byte, error) {
	call := batchCalls.Get().(*batchCall)
	defer func() {
		clear(call.ids) // they refer to the request
		call.ids, call.response = call.ids[:0], batchResponse{}
		batchCalls.Put(call)
	}()
	asked, ids, err := wire.DecodeBatchGetRequest(call.ids, request)
	call.ids = ids
	if err != nil {
		return dst, err
	}
	response, answered, err := r.GetMany(ctx, asked.Collection, ids, asked.Accept, dst, &call.response)
	if err != nil {
		return dst, err
	}
	leftOut := len(ids) - answered
	if b := &call.response; b.unavailable != nil && !b.useful && leftOut == 0 {
		// This server can answer none of the ids: the client asks another one.
		return dst, b.unavailable
	}
	if leftOut > 0 {
		response = wire.AppendLeftOut(response, leftOut)
	}
	return response, nil
}

// batchResponse is a Receiver that encodes a batch as a BatchGetResponse.
type batchResponse struct {
	useful      bool  // at least one answer is not unavailable
	unavailable error // the error of the first unavailable id
}

func (b *batchResponse) Reset() { *b = batchResponse{} }

func (b *batchResponse) Begin(dst []byte) []byte { return wire.BeginAnswer(dst) }

func (b *batchResponse) End(dst []byte, start int, asStored bool, err error) []byte {
	switch answer := (Answer{Err: err}); {
	case err == nil, answer.available(), errors.Is(err, ErrShardAbsent):
		b.useful = true
	case b.unavailable == nil:
		b.unavailable = err
	}
	if err != nil {
		return wire.AppendAnswerStatus(dst[:start], Answer{Err: err}.Status())
	}
	return wire.EndAnswer(dst, start, asStored)
}

// malformed returns an error that matches docservice.ErrMalformed.
func malformed(err error) error { return fmt.Errorf("%w: %w", docservice.ErrMalformed, err) }

func handleDictionary(ctx context.Context, r Router, request, dst []byte) ([]byte, error) {
	var asked docservicepb.DictionaryRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	var hash codec.DictionaryHash
	if len(asked.GetHash()) != len(hash) {
		return dst, malformed(fmt.Errorf("dictionary hash of %d bytes, want %d", len(asked.GetHash()), len(hash)))
	}
	content, err := r.Dictionary(ctx, []byte(asked.GetCollection()), codec.DictionaryHash(asked.GetHash()))
	if err != nil {
		return dst, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, &docservicepb.DictionaryResponse{Dictionary: content})
}

// errPageFull stops the scan at the first entry that does not fit into the page.
var errPageFull = errors.New("docservice: the page is full")

func handleScan(ctx context.Context, r Router, request, dst []byte) ([]byte, error) {
	var asked docservicepb.ScanRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	if asked.GetLimit() > docservice.MaxScanIDs {
		return dst, malformed(fmt.Errorf("limit %d exceeds %d", asked.GetLimit(), docservice.MaxScanIDs))
	}
	o := docservice.ScanOptions{Prefix: asked.GetPrefix(), After: asked.GetAfter(), Limit: int(asked.GetLimit()), IDsOnly: asked.GetIdsOnly()}
	if o.Limit == 0 {
		o.Limit = docservice.DefaultScanIDs
	}
	response, entries := dst, 0
	var last []byte
	err := r.Scan(ctx, []byte(asked.GetCollection()), o, codec.Set(asked.GetAccept()), func(id []byte, answer Answer) error {
		size := len(response) - len(dst) + len(answer.Document) + 2*(len(id)+wire.MaxAnswerOverheadBytes) // of the entry, and of next
		if entries > 0 && size > docservice.MaxReplyBytes {
			return errPageFull
		}
		response = wire.AppendEntry(response, id, answer.Status(), answer.Document, answer.AsStored)
		last = append(last[:0], id...)
		entries++
		return nil
	})
	full := errors.Is(err, errPageFull)
	if err != nil && !full {
		return dst, err
	}
	if full || entries == o.Limit {
		response = wire.AppendNext(response, last)
	}
	return response, nil
}

func handleStats(ctx context.Context, r Router, request, dst []byte) ([]byte, error) {
	var asked docservicepb.StatsRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	list, err := r.Stats(ctx, asked.GetCollection())
	if err != nil {
		return dst, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, &docservicepb.StatsResponse{Collections: list})
}

// available reports whether the answer is other than "unavailable" or an error.
func (a Answer) available() bool {
	return !errors.Is(a.Err, docservice.ErrUnavailable) && !errors.Is(a.Err, ErrClosed)
}

// Status returns the answer as a protobuf status.
func (a Answer) Status() docservicepb.Status {
	switch {
	case a.Err == nil:
		return docservicepb.Status_STATUS_FOUND
	case errors.Is(a.Err, docservice.ErrNotFound):
		return docservicepb.Status_STATUS_NOT_FOUND
	case !a.available():
		return docservicepb.Status_STATUS_UNAVAILABLE
	case errors.Is(a.Err, docservice.ErrMoved):
		return docservicepb.Status_STATUS_MOVED
	}
	return docservicepb.Status_STATUS_ERROR
}

// CallError converts an error of a Router to that of a call. Errors that concern only this server are
// marked as not processed, so that the pool tries another server.
func CallError(err error) error {
	code := boxcarrpc.CodeInternal
	var call *boxcarrpc.Error
	var noMemory *budget.NoMemoryError
	switch {
	case errors.As(err, &noMemory):
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeResourceExhausted, Message: noMemory.Error()})
	case errors.Is(err, docservice.ErrUnavailable), errors.Is(err, ErrClosed), errors.Is(err, boxcarrpc.ErrNoServer):
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: err.Error()})
	case errors.As(err, &call):
		return call
	case errors.Is(err, context.Canceled):
		code = boxcarrpc.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = boxcarrpc.CodeDeadlineExceeded
	case errors.Is(err, docservice.ErrNoCollection):
		code = boxcarrpc.CodeNotFound
	case errors.Is(err, ErrNotPermitted):
		code = boxcarrpc.CodePermissionDenied
	case errors.Is(err, docservice.ErrMalformed), errors.Is(err, docservice.ErrBadID), errors.Is(err, docservice.ErrBatchTooLarge):
		code = boxcarrpc.CodeInvalidArgument
	}
	return &boxcarrpc.Error{Code: code, Message: err.Error(), Processed: true}
}
