package docservice

import (
	"context"
	"errors"

	"docstore/boxcarrpc"
	"docstore/docservice/internal/wire"
	"docstore/queue/stored"
)

// NewLocalClient returns a client that calls a handler in this process, which is
// Service.Handle or a wrapper of it: a listener for another protocol uses it to answer what
// the handler answers over Boxcar. A batch asks for each id once. The client shares the
// cache of dictionaries. With a context of budget.Account.NewReservation the handler
// reserves memory for its responses, and the caller for the documents that it decodes.
func NewLocalClient(handler boxcarrpc.Handler, collection string, cache *stored.DecoderCache) *Client {
	return newClient(localCaller(handler), 0, collection, cache)
}

// localCaller calls a handler in this process.
type localCaller boxcarrpc.Handler

func (l localCaller) Call(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	return l(ctx, method, request, dst)
}

// Content is a document as a server sent it.
type Content struct {
	// Stored is the verified stored form. It is zero if the server decoded the document,
	// because this build lacks its codec.
	Stored stored.Form
	plain  []byte
}

// IsStored reports whether the content is in its stored form.
func (c *Content) IsStored() bool { return c.Stored.Bytes != nil }

// Bytes returns the size of the decoded document.
func (c *Content) Bytes() int {
	if c.IsStored() {
		return c.Stored.RawBytes()
	}
	return len(c.plain)
}

// Held returns the capacity of the content's own memory.
func (c *Content) Held() int { return cap(c.Stored.Bytes) + cap(c.plain) }

// Fetch returns the document with the id without decoding it. Its errors are those of Get.
func (c *Client) Fetch(ctx context.Context, id string) (Content, error) {
	if !wire.ValidIDBytes(len(id)) {
		return Content{}, ErrBadID
	}
	m := getClientMemory()
	defer m.release()
	m.request = wire.AppendAccept(wire.AppendID(wire.AppendCollection(m.request[:0], c.collection), id), c.accept)
	_, a, err := c.callGet(ctx, m.request, nil, &m.info)
	if err == nil {
		err = answerError(a.Status, id)
	}
	switch {
	case err != nil:
		return Content{}, err
	case a.Stored != nil:
		s, err := parseStored(a.Stored, []byte(id))
		return Content{Stored: s}, err
	case a.Document != nil:
		return Content{plain: a.Document}, nil
	}
	return Content{}, errEmpty
}

// Decode appends the document of a content from Fetch to dst.
func (c *Client) Decode(ctx context.Context, dst []byte, content Content) ([]byte, error) {
	if !content.IsStored() {
		return append(dst, content.plain...), nil
	}
	return c.decodeStored(ctx, dst, content.Stored)
}

// AnswerCode returns a word for the error of one document, as of Client.Get: not_found,
// unavailable, moved, invalid_id or internal.
func AnswerCode(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrMoved):
		return "moved"
	case errors.Is(err, ErrBadID):
		return "invalid_id"
	}
	return "internal"
}

// CallWith is Call: nothing is sent, so that there is nothing to hedge or describe.
func (l localCaller) CallWith(ctx context.Context, method string, request, dst []byte, _ *boxcarrpc.CallInfo) ([]byte, error) {
	return l.Call(ctx, method, request, dst)
}
