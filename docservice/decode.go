package docservice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"docstore/docservice/docservicepb"
	"docstore/queue"
)

// Documents travel as they are stored: the daemon copies the bytes of the
// segment into its answer with their checksum, codec and the hash of their
// dictionary (docs/format/stored.md), and the client decodes. So a daemon
// decompresses nothing, and the network carries what the disk holds.
//
// The client verifies the checksum, which the writer made and which covers the
// id too. It fetches a dictionary the first time a document names it. Where it
// cannot decode a document, for want of the dictionary or because the form is a
// newer one, it asks for that document's plain bytes.

// maxDictionaryBytes is what a client keeps of dictionaries: two hundred and
// fifty of those that a writer makes.
const maxDictionaryBytes = 16 << 20

// errUndecoded: the plain bytes have to be asked for.
var errUndecoded = errors.New("docservice: the stored form cannot be decoded here")

// errEmpty: an answer is found and holds no document. An empty one is stored raw,
// so who accepts any codec gets its stored form.
var errEmpty = fmt.Errorf("%w: found, and no document", ErrMalformed)

// getStored is Get of the stored form, or errUndecoded.
func (c *Client) getStored(ctx context.Context, dst []byte, id string) ([]byte, error) {
	m := getClientMemory()
	defer m.release()
	m.request = appendID(appendCollection(m.request[:0], c.collection), id)
	idEnd := len(m.request)
	m.request = appendAccept(m.request, c.accept)
	idBytes := m.request[idEnd-len(id) : idEnd]
	var err error
	if m.response, err = c.pool.Call(ctx, MethodGet, m.request, m.response[:0]); err != nil {
		return dst, clientError(err)
	}
	a, err := decodeAnswer(m.response)
	if err != nil {
		return dst, err
	}
	if err := answerError(a.status, id); err != nil {
		return dst, err
	}
	switch {
	case a.stored != nil:
		return c.decode(ctx, dst, idBytes, a.stored)
	case a.document != nil:
		return append(dst, a.document...), nil
	}
	return dst, errEmpty
}

// documentOf returns the document of an answer, which is valid until the next call
// with m.
func (c *Client) documentOf(ctx context.Context, m *clientMemory, id string, a clientAnswer) ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.stored == nil && a.document == nil && c.accept != 0:
		return nil, errEmpty
	case a.stored == nil:
		return a.document, nil
	}
	m.id = append(m.id[:0], id...) // a conversion would allocate
	out, err := c.decode(ctx, m.document[:0], m.id, a.stored)
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
func (c *Client) decode(ctx context.Context, dst, id, stored []byte) ([]byte, error) {
	s, err := queue.ParseStored(stored, id)
	if errors.Is(err, queue.ErrNewerVersion) {
		return dst, errUndecoded
	}
	if err != nil {
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

// dictionary asks the servers for a dictionary.
func (c *Client) dictionary(ctx context.Context, hash queue.DictionaryHash) ([]byte, error) {
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

// clientMemory is what one call leaves to the next.
type clientMemory struct {
	request, response []byte
	answers           []clientAnswer
	id, document      []byte // what fn of a batch sees
}

var clientMemories = sync.Pool{New: func() any { return new(clientMemory) }}

func getClientMemory() *clientMemory { return clientMemories.Get().(*clientMemory) }

func (m *clientMemory) release() {
	if cap(m.request)+cap(m.response)+cap(m.document) <= maxScratchBytes {
		clientMemories.Put(m)
	}
}
