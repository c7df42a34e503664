package docservice

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/internal/canary"
)

// ScanOptions select the ids of a scan. The zero value selects all.
type ScanOptions struct {
	Prefix []byte // only ids that begin with it
	After  []byte // only ids after this one
	// Limit is the maximum number of ids. 0 means DefaultScanIDs for a Client, and all of
	// them for a collection in this process.
	Limit   int
	IDsOnly bool // omit the documents
}

// CanaryPrefix begins the ids of documents that boxcar probe writes and looks for. Lists and counts
// leave them out, unless their prefix begins with it; Get returns them.
const CanaryPrefix = canary.Prefix

// Scan fetches a page: it calls fn for up to o.Limit ids in byte order, each with its
// document, which is valid until fn returns, or with an error as of Get. Documents that one
// server cannot read are requested from the others. Scan returns the After of the next
// page, nil after the last. It stops at the first error of fn, or when a call as a whole
// fails: with ErrUnavailable if no server has read its queue to the end.
//
// Each page may come from another server and shows the ids of another moment.
func (c *Client) Scan(ctx context.Context, o ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error) {
	if o.Limit < 0 || o.Limit > MaxScanIDs {
		return nil, fmt.Errorf("docservice: a page of %d ids: want 1 to %d", o.Limit, MaxScanIDs)
	}
	page, err := c.scanPage(ctx, o)
	if err != nil {
		return nil, err
	}
	m := getClientMemory()
	defer m.release()
	for _, entry := range page.GetEntries() {
		id := string(entry.GetId())
		var document []byte
		err := StatusError(entry.GetStatus(), id)
		if err == nil && !o.IDsOnly {
			document, err = c.documentOf(ctx, m, id, clientAnswer{Answer: wire.Answer{Document: entry.GetDocument(), Stored: entry.GetStored()}})
		}
		if errors.Is(err, ErrUnavailable) {
			if m.document, err = c.Get(ctx, m.document[:0], id); err == nil {
				document = m.document
			}
		}
		switch {
		case errors.Is(err, ErrNotFound): // deleted meanwhile
			continue
		case err != nil && !IsAnswer(err):
			return nil, err
		}
		if err := fn(id, document, err); err != nil {
			return nil, err
		}
	}
	return page.GetNext(), nil
}

// scanPage is one call of Scan.
func (c *Client) scanPage(ctx context.Context, o ScanOptions) (*docservicepb.ScanResponse, error) {
	request, err := proto.Marshal(&docservicepb.ScanRequest{
		Collection: c.collection, Prefix: o.Prefix, After: o.After, Limit: uint32(o.Limit),
		Accept: uint32(c.accept), IdsOnly: o.IDsOnly,
	})
	if err != nil {
		return nil, err
	}
	body, err := c.pool.Call(ctx, MethodScan, request, nil)
	if err != nil {
		return nil, clientError(err)
	}
	page := new(docservicepb.ScanResponse)
	if err := proto.Unmarshal(body, page); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return page, nil
}
