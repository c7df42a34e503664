package simulate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"docstore/docservice"
	"docstore/internal/simulate/chance"
)

// tagged is a document with its entity tag.
type tagged struct {
	tag      string
	document []byte
}

// otherTag is an entity tag that no document has.
const otherTag = `"1-2-3-00000000"`

// Hosts of requests: the name of servers, and that of a web page whose name resolves to their address.
const (
	ownHost   = "docstore.example"
	otherHost = "page.example"
)

// documentRequest is a request for a document over HTTP. Fields of conditions are empty without one.
type documentRequest struct {
	id, method, host     string
	ifMatch, ifNoneMatch string
	first, last          int // of the requested part; last 0: of all
	known                tagged
}

// drawRequest draws a request: conditions are about the document that this client has got last.
func (c *adapterClient) drawRequest(id string, d *chance.Draw) documentRequest {
	r := documentRequest{id: id, method: http.MethodGet, known: c.tagged[id]}
	switch d.Int(8) {
	case 0:
		r.method = http.MethodHead
	case 1, 2:
		r.ifNoneMatch = r.known.tag
	case 3:
		r.ifMatch = cmp.Or(r.known.tag, otherTag)
	case 4:
		r.host = otherHost
	case 5:
		r.first = d.Int(100)
		r.last = r.first + 1 + d.Int(1000)
	}
	return r
}

// header returns the header. Without a coding, so that all responses to a client have the same tag.
func (r *documentRequest) header() http.Header {
	h := http.Header{"Accept-Encoding": {"identity"}}
	for name, value := range map[string]string{"Host": r.host, "If-Match": r.ifMatch, "If-None-Match": r.ifNoneMatch} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if r.last > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", r.first, r.last))
	}
	return h
}

// getHTTP gets a document, or a part of it, or only its header, under a condition.
func (c *adapterClient) getHTTP(ctx context.Context, id string, d *chance.Draw) {
	r := c.drawRequest(id, d)
	p := c.begin()
	response, err := c.send(ctx, r.method, "/documents/"+collectionName+"/"+url.PathEscape(id), r.header(), "")
	if err != nil {
		c.failed(p.question, id, err)
		return
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		c.failed(p.question, id, err)
		return
	}
	c.judgeResponse(p, &r, response, body)
}

// judgeResponse judges the response to a request for a document.
func (c *adapterClient) judgeResponse(p pending, r *documentRequest, response *http.Response, body []byte) {
	a, tag := c.w.account, response.Header.Get("ETag")
	wrongf := func(format string, args ...any) {
		a.wrongf("condition", "%s, %+v: %s: %s", c.single.name, r, response.Status, fmt.Sprintf(format, args...))
	}
	if r.host != "" {
		if response.StatusCode != http.StatusForbidden {
			wrongf("the page of another host gets a response")
		}
		return
	}
	switch response.StatusCode {
	case http.StatusOK:
		if r.ifMatch != "" && r.ifMatch != tag {
			wrongf("If-Match is ignored: the tag is %s", tag)
		}
		if r.method == http.MethodHead {
			if !a.hasPart(r.id, 0, response.ContentLength, nil) {
				wrongf("no version has %d bytes", response.ContentLength)
			}
			return
		}
		if tag != "" && tag == r.known.tag && !bytes.Equal(body, r.known.document) {
			wrongf("the tag %s has another document", tag)
		}
		if tag != "" {
			c.tagged[r.id] = tagged{tag, body}
		}
		c.end(p, r.id, body, nil)
	case http.StatusNotModified:
		if r.ifNoneMatch == "" || tag != r.ifNoneMatch {
			wrongf("the tag is %s", tag)
			return
		}
		c.end(p, r.id, r.known.document, nil)
	case http.StatusPartialContent:
		var first, last, size int64
		_, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size)
		if err != nil || r.last == 0 || first != int64(r.first) || last-first+1 != int64(len(body)) || !a.hasPart(r.id, first, size, body) {
			wrongf("Content-Range %s: no version has these %d bytes: %v", response.Header.Get("Content-Range"), len(body), err)
		}
	case http.StatusPreconditionFailed:
		if r.ifMatch == "" {
			wrongf("the request has no precondition")
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if r.last == 0 {
			wrongf("the request has no range")
		}
	case http.StatusNotFound:
		c.end(p, r.id, nil, docservice.ErrNotFound)
	case http.StatusServiceUnavailable:
		if r.method != http.MethodHead && !strings.Contains(string(body), noMemory) {
			c.end(p, r.id, nil, fmt.Errorf("%w: %s", docservice.ErrUnavailable, body))
		}
	default:
		c.end(p, r.id, nil, statusError(response.StatusCode))
	}
}

// noMemory is in the message of a response 503 for want of memory.
const noMemory = "no memory"

// hasPart reports whether a version of an id has that size and those bytes from an offset.
func (a *account) hasPart(id string, offset, size int64, part []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.mu.of[id] {
		if e := a.mu.entries[p]; !e.deleted {
			if record := e.record(); int64(len(record)) == size && strings.HasPrefix(record[offset:], string(part)) {
				return true
			}
		}
	}
	return false
}

// headOfLists checks that HEAD of the export reads no documents. There are no other requests.
func (c *adapterClient) headOfLists() {
	ctx, cancel := context.WithTimeout(context.Background(), exportTime)
	defer cancel()
	before := c.w.documentsRead()
	response, err := c.send(ctx, http.MethodHead, exportPath, nil, "")
	if err != nil {
		c.w.account.other("error")
		return
	}
	c.w.must(response.Body.Close())
	if after := c.w.documentsRead(); after != before {
		c.w.account.wrongf("head", "%s reads %d documents for HEAD of an export", c.single.name, after-before)
	}
}

// documentsRead returns how many documents the servers have read since they started.
func (w *world) documentsRead() (n uint64) {
	for _, h := range w.servers {
		if s := h.started(); s != nil {
			for _, one := range s.Collections() {
				n += one.Status().Gets.Found
			}
		}
	}
	return n
}
