package docservice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// Documents are transferred in their stored form: the daemon copies the bytes of the
// segment to the response, with checksum, codec and the hash of the dictionary
// (docs/format/stored.md), and the client decodes them. The daemon decompresses nothing,
// and the network carries the compressed bytes.
//
// The client verifies the checksum, which the writer computed and which covers the id. It
// fetches a dictionary the first time a document names it. If it cannot decode a document,
// because the dictionary is missing or the form is newer, it requests the plain bytes of
// that document.

// maxScratchBytes is the maximum size of the buffers that one call leaves to the next.
const maxScratchBytes = 4 << 20

// maxDictionaryBytes limits the dictionaries that a client caches: about 250 of the size
// that a writer makes.
const maxDictionaryBytes = 16 << 20

// errUndecoded: the caller must request the plain bytes.
var errUndecoded = errors.New("docservice: the stored form cannot be decoded here")

// errEmpty: an answer says found but holds no document. Even an empty document has a stored
// form, which is sent to a client that accepts any codec.
var errEmpty = fmt.Errorf("%w: the answer says found, but has no document", ErrMalformed)

// getStored is Get of the stored form; it may return errUndecoded.
func (c *Client) getStored(ctx context.Context, dst []byte, id string) ([]byte, error) {
	m := getClientMemory()
	defer m.release()
	m.request = wire.AppendID(wire.AppendCollection(m.request[:0], c.collection), id)
	idEnd := len(m.request)
	m.request = wire.AppendAccept(m.request, c.accept)
	idBytes := m.request[idEnd-len(id) : idEnd]
	var (
		a   wire.Answer
		err error
	)
	if m.response, a, err = c.callGet(ctx, m.request, m.response[:0], &m.info); err != nil {
		return dst, err
	}
	if err := StatusError(a.Status, id); err != nil {
		return dst, err
	}
	switch {
	case a.Stored != nil:
		return c.decode(ctx, dst, idBytes, a.Stored)
	case a.Document != nil:
		return append(dst, a.Document...), nil
	}
	return dst, errEmpty
}

// documentOf returns the document of an answer, which is valid until the next call
// with m.
func (c *Client) documentOf(ctx context.Context, m *clientMemory, id string, a clientAnswer) ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.Stored == nil && a.Document == nil && c.accept != 0:
		return nil, errEmpty
	case a.Stored == nil:
		return a.Document, nil
	}
	m.id = append(m.id[:0], id...) // a conversion would allocate
	out, err := c.decode(ctx, m.document[:0], m.id, a.Stored)
	if errors.Is(err, errUndecoded) {
		out, err = c.getPlain(ctx, out, id)
	}
	m.document = out
	if err != nil {
		return nil, err
	}
	return out, nil
}

// decode verifies a stored form and appends its document to dst.
func (c *Client) decode(ctx context.Context, dst, id, form []byte) ([]byte, error) {
	s, err := stored.Parse(form, id)
	switch {
	case errors.Is(err, stored.ErrNewerVersion):
		return dst, errUndecoded
	case err != nil:
		return dst, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	out, err := c.decoders.Decode(ctx, dst, s)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return dst, ctx.Err()
	}
	return dst, fmt.Errorf("%w: %w", errUndecoded, err)
}

// dictionary fetches a dictionary from the servers.
func (c *Client) dictionary(ctx context.Context, hash codec.DictionaryHash) ([]byte, error) {
	request, err := proto.Marshal(&docservicepb.DictionaryRequest{Collection: c.collection, Hash: hash[:]})
	if err != nil {
		return nil, err
	}
	body, err := c.pool.Call(ctx, MethodDictionary, request, nil)
	if err != nil {
		return nil, clientError(err)
	}
	var response docservicepb.DictionaryResponse
	if err := proto.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return response.GetDictionary(), nil
}

// clientMemory holds the buffers that one call leaves to the next.
type clientMemory struct {
	request, response []byte
	info              boxcarrpc.CallInfo
	answers           []clientAnswer
	id, document      []byte // passed to fn of a batch
	batch             Batch
}

var clientMemories = sync.Pool{New: func() any { return new(clientMemory) }}

func getClientMemory() *clientMemory { return clientMemories.Get().(*clientMemory) }

func (m *clientMemory) release() {
	m.info = boxcarrpc.CallInfo{}
	if cap(m.request)+cap(m.response)+cap(m.document) <= maxScratchBytes {
		clientMemories.Put(m)
	}
}
